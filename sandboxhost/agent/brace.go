package agent

import "github.com/controld/controld/sandbox/local"

// Brace readies this process for life beside commands that may be hostile,
// before anything else is done.
//
// Memory, environment and descriptors are closed to commands, see [local.Hide].
// Process 1 is then ended by no signal from its namespace, and from outside by
// SIGKILL alone: who sent a signal is not told, so there is none that could end
// it in good order. A fault of its own, as the use of a nil pointer, ends it at
// once and without a word.
//
// Where commands are of the same user they can still starve it: they may lower
// its limits, see prlimit(2).
func Brace() error {
	if err := local.Hide(); err != nil || !first() {
		return err
	}
	return deafen()
}
