package goals

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/controld/controld/integration/faultproxy"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// flips is G15: transfers of which one bit turns on the way.
func flips(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G15", Promise: "with a digest a bit that turns on the way is noticed, and the file is the old one",
		Quick: 1000, Lanes: 4,
		Open: opens(g, openFlips),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			if n := t.States["struck"]; n != t.Tries {
				missing = append(missing, fmt.Sprintf("%d of %d bits turned", n, t.Tries))
			}
			for _, name := range []string{"reads without a digest", "writes without a digest"} {
				if t.Control[name] == 0 {
					missing = append(missing, "control: no wrong bytes in "+name)
				}
			}
			return missing
		},
	}
}

// flipped is a daemon that is reached through wires that turn bits.
type flipped struct {
	daemon *ground.Daemon
	place  *ground.Place
}

func openFlips(ctx context.Context, g *ground.Ground) (*flipped, error) {
	place, err := g.Place()
	if err != nil {
		return nil, err
	}
	d, err := place.Start(ctx)
	return &flipped{d, place}, err
}

// Try implements [proof.Prover]. One point in ten goes without a digest.
func (f *flipped) Try(ctx context.Context, p *proof.Point) error {
	direction := faultproxy.Direction(p.Rand.IntN(2))
	size := aSize(p.Rand, 256<<10)
	at := p.Rand.Int64N(size)
	fault := faultproxy.Fault{Kind: faultproxy.Flip, Direction: direction, At: at + welcome, Bit: uint(p.Rand.IntN(8))}
	if direction == faultproxy.Up {
		fault.At = at + preamble
	}
	w, err := newWire(f.daemon, plain, faultproxy.Plan{Fault: fault}, noOptions)
	if err != nil {
		return err
	}
	defer w.close()
	p.Cut(at, size)
	digest := p.N%10 != 0
	path := filepath.Join(f.place.Cwd(), fmt.Sprint(p.N))
	defer os.Remove(path)
	data, older := content(p.Rand, size), []byte("old")
	if direction == faultproxy.Down {
		err = f.read(ctx, p, w, path, data, digest)
	} else {
		err = f.write(ctx, p, w, path, older, data, digest)
	}
	if w.struck() {
		p.State("struck")
		p.Fault(direction.String() + " flip")
	}
	return err
}

func (f *flipped) read(ctx context.Context, p *proof.Point, w *wire, path string, data []byte, digest bool) error {
	if err := put(path, data); err != nil {
		return err
	}
	s, err := w.ReadFileStream(ctx, filepath.Base(path), sandbox.ReadOptions{Digest: digest})
	if err != nil {
		return err
	}
	defer s.Close()
	got, err := io.ReadAll(s)
	switch kind := sandbox.KindOf(err); {
	case digest && kind != sandbox.KindCorrupt:
		p.Violate("a read of %d bytes, one of them wrong, said %v", len(data), err)
	case !digest && err == nil && !bytes.Equal(got, data):
		p.Fails("reads without a digest", 1)
	}
	return nil
}

func (f *flipped) write(ctx context.Context, p *proof.Point, w *wire, path string, older, newer []byte, digest bool) error {
	if err := put(path, older); err != nil {
		return err
	}
	_, err := w.WriteFileStream(ctx, filepath.Base(path), bytes.NewReader(newer), sandbox.WriteOptions{Digest: digest})
	got, rerr := check.FileDigest(path)
	switch kind := sandbox.KindOf(err); {
	case rerr != nil:
		return rerr
	case digest && (kind != sandbox.KindCorrupt || got != check.Digest(older)):
		p.Violate("a write of %d bytes, one of them wrong on its way, said %v and left SHA-256 %s", len(newer), err, got)
	case !digest && err == nil && got != check.Digest(newer):
		p.Fails("writes without a digest", 1)
	}
	return nil
}

// Close implements [proof.Prover].
func (f *flipped) Close(*proof.Tally) error {
	f.daemon.Stop()
	return nil
}
