//go:build !race

package filestore_test

const raced = false
