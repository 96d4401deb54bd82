//go:build linux

package local

import (
	"os"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// answerSoon is when an answer that needs no more than its shell must be there,
// on a busy machine too.
const answerSoon = 10 * time.Second

// TestAnswerComesBeforeTheChildEnds: a child in the background that holds an
// output of its shell open, and lives until the answer is there, holds nothing
// back.
func TestAnswerComesBeforeTheChildEnds(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		gate := s.opts.DefaultCwd + "/gate"
		for _, c := range []struct{ what, command string }{
			{"both outputs", "mkfifo gate; (read x <gate) & printf hi"},
			{"stdout", "mkfifo gate; (read x <gate) 2>/dev/null & printf hi"},
			{"stderr", "mkfifo gate; (read x <gate) >/dev/null & printf hi"},
		} {
			answers := make(chan sandbox.ShellResult, 1)
			go func() {
				res, err := s.Exec(bg(), c.command, sandbox.ExecOptions{})
				if err != nil {
					t.Error(err)
				}
				answers <- res
			}()
			var res sandbox.ShellResult
			late := time.NewTimer(answerSoon)
			select {
			case res = <-answers:
			case <-late.C:
				t.Errorf("%s: the answer waits for the child", c.what)
			}
			late.Stop()
			must(0, os.WriteFile(gate, []byte("x\n"), 0)) // blocks until the child is there, and ends it
			must(0, os.Remove(gate))
			if t.Failed() {
				<-answers
				return
			}
			if string(res.Stdout) != "hi" || res.ExitCode != 0 || !res.Background {
				t.Errorf("%s: %+v", c.what, res)
			}
		}
	})
}
