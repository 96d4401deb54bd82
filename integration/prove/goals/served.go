package goals

import (
	"context"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/ground"
)

// served is a daemon with a client.
type served struct {
	daemon *ground.Daemon
	client *adapter.Sandbox
}

// open starts the daemon at a place of its own.
func (s *served) open(ctx context.Context, g *ground.Ground) error {
	place, err := g.Place()
	if err != nil {
		return err
	}
	if s.daemon, err = place.Start(ctx); err != nil {
		return err
	}
	s.client, err = s.daemon.Client(noOptions)
	return err
}

// end ends what there is.
func (s *served) end() {
	if s.client != nil {
		s.client.Close()
	}
	if s.daemon != nil {
		s.daemon.Stop()
	}
}
