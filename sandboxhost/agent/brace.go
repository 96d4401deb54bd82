package agent

import "github.com/controld/controld/sandbox/local"

// brace readies this process for life beside commands that may be hostile,
// before there are any.
//
// With a user of their own they can neither signal it nor change its limits, and
// what they may not read or write no file call reads or writes for them.
// Memory, environment and descriptors are closed to them, see [local.Hide].
// Process 1 is then ended by no signal from its namespace, and from outside by
// SIGKILL alone: who sent a signal is not told, so there is none that could end
// it in good order. A fault of its own, as the use of a nil pointer, ends it at
// once and without a word.
//
// Where commands are of the same user they can still starve it: they may lower
// its limits, see prlimit(2).
func (a Agent) brace() error {
	if a.User != nil {
		if err := become(*a.User, a.Own); err != nil {
			return err
		}
	}
	if a.Traceable {
		return nil
	}
	if err := local.Hide(); err != nil || !first() {
		return err
	}
	return deafen()
}
