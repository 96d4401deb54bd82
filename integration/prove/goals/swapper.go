package goals

import (
	"fmt"
	"path/filepath"
)

// swapper lets two names change places beside whoever uses them: as fast as it
// goes, which is when the naive way is led out, or calmly, so that a call of
// several steps meets the same ones now and then.
type swapper struct {
	a, b  string
	mode  chan bool     // fast
	tries chan struct{} // one swap, please
	done  chan struct{}
	quit  chan struct{}
	ended chan error
}

// swap starts a swapper of the arena's names, which is fast at first.
func (ar *arena) swap() *swapper {
	s := &swapper{a: filepath.Join(ar.scope, "a"), b: filepath.Join(ar.scope, "b"), mode: make(chan bool),
		tries: make(chan struct{}, 1), done: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan error, 1)}
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
			if !fast {
				s.done <- struct{}{}
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

// A calm swapper swaps once in calmTries, beside one of their first half: in the
// second half nothing moves.
const calmTries = 16

// calm is called before the n-th try beside a slow swapper.
func (s *swapper) calm(n int) {
	switch n % calmTries {
	case 0:
		select {
		case s.tries <- struct{}{}:
		case err := <-s.ended:
			s.ended <- err
		}
	case calmTries / 2:
		select {
		case <-s.done:
		case err := <-s.ended:
			s.ended <- err
		}
	}
}

// stop ends the swapper and tells whether it could do its work.
func (s *swapper) stop() error {
	close(s.quit)
	return <-s.ended
}
