package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// call is one tool call of a turn.
type call struct {
	ID   string          `json:"id,omitempty"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// turn is what a script or a model wants next: calls, or a last word.
type turn struct {
	Say   string `json:"say,omitempty"`
	Calls []call `json:"calls,omitempty"`
}

// source yields turns. results are those of the turn before.
type source interface {
	next(ctx context.Context, results []result) (turn, bool, error)
}

// maxTurns ends a model that never ends.
const maxTurns = 100

// loop runs turns until there are no more. The calls of one turn run side by
// side; their results keep their order.
func loop(ctx context.Context, src source, tools *toolbox, log *transcript) error {
	var results []result
	for n := 1; n <= maxTurns; n++ {
		t, more, err := src.next(ctx, results)
		if err != nil {
			return fmt.Errorf("turn %d: %w", n, err)
		}
		log.turn(n, t)
		results = make([]result, len(t.Calls))
		var wg sync.WaitGroup
		for i, c := range t.Calls {
			wg.Go(func() { results[i] = tools.run(ctx, c) })
		}
		wg.Wait()
		for i, c := range t.Calls {
			log.call(c, results[i])
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !more {
			return nil
		}
	}
	return fmt.Errorf("no end after %d turns", maxTurns)
}

// script is a source of turns that are fixed.
type script struct{ turns []turn }

func (s *script) next(context.Context, []result) (turn, bool, error) {
	if len(s.turns) == 0 {
		return turn{}, false, nil
	}
	t := s.turns[0]
	s.turns = s.turns[1:]
	return t, len(s.turns) > 0, nil
}

func loadScript(path string) (source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &script{}
	if err := json.Unmarshal(text, &s.turns); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// transcript writes what happened, without anything that differs from run to
// run.
type transcript struct{ w io.Writer }

func (t *transcript) turn(n int, tn turn) {
	fmt.Fprintf(t.w, "turn %d", n)
	if tn.Say != "" {
		fmt.Fprintf(t.w, ": %s", tn.Say)
	}
	fmt.Fprintln(t.w)
}

func (t *transcript) call(c call, r result) {
	fmt.Fprintf(t.w, "  %s %s\n    -> %s\n", c.Tool, shorten(string(c.Args), 120), r.line)
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "..."
}
