/** Foreign names as parts of session ids: the text itself if it fits, else its hash. */
export async function partOf(text: string): Promise<string> {
  if (/^[A-Za-z0-9._-]{1,36}$/.test(text)) return text;
  return '~' + (await hash(text)).slice(0, 32);
}

export async function hash(text: string): Promise<string> {
  const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  return Array.from(sum, (b) => b.toString(16).padStart(2, '0')).join('');
}

export const bytes = (text: string) => new TextEncoder().encode(text).length;

/** Whether a text can be an event's id or a label: not empty, not too long, no control characters. */
export const fits = (text: unknown): text is string => typeof text === 'string' && text !== '' && bytes(text) <= 256 && !/[\p{Cc}\p{Cs}]/u.test(text);
