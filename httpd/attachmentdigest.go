package httpd

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"hansard"
	"hansard/internal/wire"
)

func newDigest() hash.Hash { return sha256.New() }

// compared is an upload whose sender said which digest it has. If it has another it ends
// in an error, so that nothing is stored.
type compared struct {
	u   *upload
	sum hash.Hash
}

func (c *compared) Read(p []byte) (int, error) {
	n, err := c.u.Read(p)
	c.sum.Write(p[:n])
	if err == io.EOF && hansard.DigestPrefix+hex.EncodeToString(c.sum.Sum(nil)) != c.u.want {
		c.u.err = wire.NewProblem("malformed", "the body has another digest than Repr-Digest says", "send it again")
		return n, c.u.err
	}
	return n, err
}
