//go:build race

package halves

const raced = true
