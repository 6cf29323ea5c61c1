//go:build !unix

package main

// stopper handles Ctrl-Z, which does not exist here.
type stopper struct{}

func catchStop() *stopper                 { return &stopper{} }
func (*stopper) hold() func(func(func())) { return func(func(func())) {} }
func (*stopper) with(fn func() func())    { fn() }
func (s *stopper) release()               {}
