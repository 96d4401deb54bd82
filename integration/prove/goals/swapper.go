package goals

import (
	"fmt"
	"path/filepath"
)

// swapper lets two names change places beside whoever uses them: as fast as it
// goes, which is when the naive way is led out, or once for some calls, so that
// a call of several steps meets the same ones now and then.
type swapper struct {
	a, b  string
	mode  chan bool // fast
	tries chan struct{}
	quit  chan struct{}
	ended chan error
}

// swap starts a swapper of the arena's names, which is fast at first.
func (ar *arena) swap() *swapper {
	s := &swapper{a: filepath.Join(ar.scope, "a"), b: filepath.Join(ar.scope, "b"), mode: make(chan bool),
		tries: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan error, 1)}
	go func() { s.ended <- s.run() }()
	return s
}

func (s *swapper) run() error {
	closed := make(chan struct{})
	close(closed)
	for fast := true; ; {
		next := s.tries
		if fast {
			next = closed
		}
		select {
		case <-s.quit:
			return nil
		case fast = <-s.mode:
		case <-next:
			if err := exchange(s.a, s.b); err != nil {
				return fmt.Errorf("exchange: %w", err)
			}
		}
	}
}

// change sets the mode, unless the swapper has ended.
func (s *swapper) change(fast bool) {
	select {
	case s.mode <- fast:
	case err := <-s.ended:
		s.ended <- err
	}
}

func (s *swapper) slow() { s.change(false) }
func (s *swapper) fast() { s.change(true) }

// once has a slow swapper swap once, soon.
func (s *swapper) once() {
	select {
	case s.tries <- struct{}{}:
	default:
	}
}

// stop ends the swapper and tells whether it could do its work.
func (s *swapper) stop() error {
	close(s.quit)
	return <-s.ended
}
