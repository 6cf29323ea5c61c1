//go:build !linux

package vfs

import "io/fs"

func kindOf(mode fs.FileMode) kind {
	switch {
	case mode.IsRegular():
		return kindRegular
	case mode.IsDir():
		return kindDir
	case mode&fs.ModeSymlink != 0:
		return kindLink
	}
	return kindOther
}

// underlying removes the path from an error; the caller adds its own.
func underlying(err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err
	}
	return err
}

// noAtime: there is no such flag here.
const noAtime = 0
