export const inject = () => undefined;
