//go:build cgo

package main

import _ "github.com/mattn/go-sqlite3" // the driver "sqlite3"
