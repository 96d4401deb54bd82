package goals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// neighbours is G13: a tenant whose readers stand still and whose commands
// never stop writing, and what another one feels of it.
func neighbours(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G13", Promise: "one tenant cannot stall another",
		Quick: 8, Lanes: 1,
		Open:  opens(g, openNeighbours),
		Judge: func(t *proof.Tally) []string { return missingWindows(t, neighbourReads, neighbourExecs) },
	}
}

// What the quiet tenant does.
const (
	neighbourReads = "read_file"
	neighbourExecs = "exec"
)

// stalledStreams stand still at once, each in a file of stalledSize; a window
// of one kind of call takes quietTime.
const (
	stalledStreams = 50
	stalledSize    = 1 << 30
	quietTime      = 250 * time.Millisecond
)

// side is who works quietly and who makes trouble beside it.
type side interface {
	// read and run are what the quiet one does over and over.
	read(context.Context) error
	run(context.Context) error
	// stall opens a stream of which nothing more is read.
	stall(context.Context) (io.Closer, error)
	// flood runs a command that never stops writing until ctx ends.
	flood(context.Context) error
}

// shared is a daemon of two tenants, a quiet and a loud one. A process that
// reads a flood answers later than one that does not, whatever it does besides:
// the bare side says how much later on this machine.
type shared struct {
	daemon      *ground.Daemon
	quiet, loud *adapter.Sandbox
	bare        *plainly
}

// plainly is the bare side.
type plainly struct {
	*ground.Bare
	quiet *ground.Asker
	file  string
}

// quietContent is what the quiet one reads.
const quietContent = "a file as short as most"

func openNeighbours(ctx context.Context, g *ground.Ground) (*shared, error) {
	s := &shared{}
	place, err := g.Place()
	if err != nil {
		return s, err
	}
	secret, err := place.Admit("loud")
	if err != nil {
		return s, err
	}
	if s.daemon, err = place.Start(ctx); err != nil {
		return s, err
	}
	if s.quiet, err = s.daemon.Client(noOptions); err != nil {
		return s, err
	}
	if s.loud, err = s.daemon.Client(adapter.Options{Token: secret}); err != nil {
		return s, err
	}
	if _, err := s.loud.Exec(ctx, fmt.Sprint("truncate -s ", stalledSize, " f"), sandbox.ExecOptions{}); err != nil {
		return s, err
	}
	if _, err = s.quiet.WriteFile(ctx, "f", []byte(quietContent), sandbox.WriteOptions{}); err != nil {
		return s, err
	}
	s.bare = &plainly{file: filepath.Join(place.Cwd(), "f")}
	if s.bare.Bare, err = g.StartBare(ctx); err != nil {
		return s, err
	}
	s.bare.quiet, err = s.bare.Asker(ctx)
	return s, err
}

func (b *plainly) read(context.Context) error { return b.quiet.Ask("read " + b.file) }

func (b *plainly) run(context.Context) error { return b.quiet.Ask("run") }

func (b *plainly) stall(ctx context.Context) (io.Closer, error) {
	a, err := b.Asker(ctx)
	if err != nil {
		return nil, err
	}
	if err = a.Say("endless"); err == nil {
		_, err = io.ReadFull(a, make([]byte, 1))
	}
	return a, err
}

func (b *plainly) flood(ctx context.Context) error {
	a, err := b.Asker(ctx)
	if err != nil {
		return err
	}
	err = a.Say("flood")
	<-ctx.Done()
	return errors.Join(err, a.Close())
}

func (s *shared) read(ctx context.Context) error {
	text, err := s.quiet.ReadFile(ctx, "f", sandbox.ReadOptions{})
	if err == nil && text != quietContent {
		err = fmt.Errorf("read_file says %q", text)
	}
	return err
}

func (s *shared) run(ctx context.Context) error {
	_, err := s.quiet.Exec(ctx, "true", sandbox.ExecOptions{})
	return err
}

func (s *shared) stall(ctx context.Context) (io.Closer, error) {
	stream, err := s.loud.ReadFileStream(ctx, "f", sandbox.ReadOptions{})
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(stream, make([]byte, 1))
	return stream, err
}

func (s *shared) flood(ctx context.Context) error {
	if _, err := s.loud.Exec(ctx, "yes", sandbox.ExecOptions{}); sandbox.KindOf(err) != sandbox.KindCancelled {
		return fmt.Errorf("the flood ended: %w", err)
	}
	return nil
}

// Try implements [proof.Prover]. A point is a window of each: the daemon without
// trouble, the bare side and the daemon with it.
func (s *shared) Try(ctx context.Context, p *proof.Point) error {
	alone, err := quietly(ctx, s)
	if err != nil {
		return err
	}
	troubled := make(map[side]map[string][]time.Duration)
	order := []side{s.bare, s}
	if p.N%2 == 1 {
		slices.Reverse(order)
	}
	for _, of := range order {
		if troubled[of], err = beside(ctx, of); err != nil {
			return err
		}
	}
	p.Add("stalled streams", stalledStreams)
	for what := range alone {
		compare(&p.Tally, what, troubled[s][what], map[string][]time.Duration{aloneControl: alone[what], bareControl: troubled[s.bare][what]})
	}
	return nil
}

// quietly is a window of each kind of call.
func quietly(ctx context.Context, of side) (took map[string][]time.Duration, err error) {
	took = make(map[string][]time.Duration)
	if took[neighbourReads], err = window(ctx, quietTime, of.read); err != nil {
		return nil, err
	}
	took[neighbourExecs], err = window(ctx, quietTime, of.run)
	return took, err
}

// beside is quietly while there is trouble.
func beside(ctx context.Context, of side) (took map[string][]time.Duration, err error) {
	for range stalledStreams {
		stream, err := of.stall(ctx)
		if stream != nil {
			defer stream.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	troubled, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- of.flood(troubled) }()
	took, err = quietly(ctx, of)
	cancel()
	return took, errors.Join(err, <-ended)
}

// Close implements [proof.Prover].
func (s *shared) Close(t *proof.Tally) error {
	closeWindows(t, neighbourReads, neighbourExecs)
	for _, sb := range []*adapter.Sandbox{s.quiet, s.loud} {
		if sb != nil {
			sb.Close()
		}
	}
	if s.bare != nil && s.bare.Bare != nil {
		s.bare.Close()
	}
	if s.daemon != nil {
		s.daemon.Stop()
	}
	return nil
}
