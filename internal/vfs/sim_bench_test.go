package vfs

import (
	"fmt"
	"testing"
)

func BenchmarkCrashState(b *testing.B) {
	d := NewDisk(1)
	p := d.Process("a")
	f, err := toy{}.open(p)
	if err != nil {
		b.Fatal(err)
	}
	for k := range 20 {
		g, err := p.Open(fmt.Sprint("file", k), Create)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.WriteAt(make([]byte, 5000), 0); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := f.WriteAt(make([]byte, 20_000), 1000); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		c := d.Clone()
		c.PowerCut(Cut{Keep: 50, Seed: uint64(n)})
	}
}

func BenchmarkOp(b *testing.B) {
	for _, procs := range []int{0, 1, 2} {
		b.Run(fmt.Sprint("procs=", procs), func(b *testing.B) {
			d := NewDisk(1)
			d.MaxOps = 1 << 60
			buf := make([]byte, 200)
			loop := func(p *Proc, n int) {
				f, err := p.Open("f", Create)
				if err != nil {
					b.Error(err)
					return
				}
				for k := range n {
					if _, err := f.WriteAt(buf, int64(k%300)*200); err != nil {
						b.Error(err)
						return
					}
				}
			}
			b.ReportAllocs()
			if procs == 0 {
				loop(d.Process("a"), b.N)
				return
			}
			for range procs {
				p := d.Process("a")
				d.Go(p, func() { loop(p, b.N/procs) })
			}
			if err := d.Run(); err != nil {
				b.Error(err)
			}
		})
	}
}
