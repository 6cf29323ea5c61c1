//go:build !unix

package httpd

import (
	"io/fs"
	"os"
)

const openStrictly = 0

func isLink(error) bool { return false }

func ownFile(string, fs.FileInfo) bool { return true }

// filePlace would distinguish a file from a copy of it, which is not possible here.
func filePlace(*os.File) string { return "" }
