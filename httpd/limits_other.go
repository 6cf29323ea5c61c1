//go:build !unix

package httpd

import "math"

// maxFiles is how many files and connections the process may have open.
func maxFiles() int { return math.MaxInt32 }
