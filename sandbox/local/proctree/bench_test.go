//go:build linux

package proctree

import (
	"os"
	"testing"
)

// BenchmarkStart starts a command and waits for its end, with and without a
// keeper.
func BenchmarkStart(b *testing.B) {
	for _, keeper := range []*Keeper{nil, newKeeper()} {
		name := "alone"
		if keeper != nil {
			name = "keeper"
			defer keeper.Close()
		}
		b.Run(name, func(b *testing.B) {
			f, err := Open(Options{Walk: true, Keeper: keeper})
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close(patience)
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer null.Close()
			c := Command{Path: "/bin/sh", Args: []string{"sh", "-c", ":"}, Env: []string{"A=b"}, Dir: "/", Files: []*os.File{null, null, null}}
			for b.Loop() {
				tree, err := f.Start(c)
				if err != nil {
					b.Fatal(err)
				}
				<-tree.Exited()
				if tree.Alive() {
					b.Fatal("alive")
				}
				tree.Release()
			}
		})
	}
}
