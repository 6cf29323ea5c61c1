package hansard

import (
	"encoding/hex"
	"io"
	"strings"
)

// Attachment names bytes that are kept beside a session's log. In an event it also says
// what they are.
type Attachment struct {
	// Digest is "sha256:" and 64 lower-case hex digits.
	Digest string `json:"digest"`
	// Size is in bytes. In a batch it has to be what Attach has returned.
	Size int64 `json:"size"`
	// MediaType, such as image/png, and Name, a file name, are for people and the
	// programs that display it: nobody has checked them. Attach sets neither.
	MediaType string `json:"media_type,omitempty"`
	Name      string `json:"name,omitempty"`
}

// AttachmentReader reads an attachment.
type AttachmentReader interface {
	io.ReadSeekCloser
	// Size is how many bytes there are.
	Size() int64
}

// DigestPrefix begins every digest.
const DigestPrefix = "sha256:"

// CheckDigest checks that a text is the digest of an attachment by its form.
func CheckDigest(digest string) error {
	sum, ok := strings.CutPrefix(digest, DigestPrefix)
	if _, err := hex.DecodeString(sum); !ok || len(sum) != 64 || err != nil || strings.ToLower(sum) != sum {
		return invalid("digest", "%.80q is not sha256: and 64 lower-case hex digits", digest)
	}
	return nil
}
