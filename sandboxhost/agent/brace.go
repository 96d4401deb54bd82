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
// it in good order.
//
// Where commands are of the same user they can still starve it: they may lower
// its limits, see prlimit(2). And a fault of its own, as the use of a nil
// pointer, ends it without a word: commands could feign one, so it hears of none.
func (a Agent) brace() error {
	if !a.Traceable {
		if err := local.Hide(); err != nil {
			return err
		}
	}
	if a.User != nil {
		// Who changes is hidden by the kernel, unless fs.suid_dumpable says else.
		if err := become(*a.User, a.Own, a.Processes); err != nil {
			return err
		}
	}
	if a.Traceable || !first() {
		return nil
	}
	if err := local.Hide(); err != nil {
		return err
	}
	return deafen(a.User != nil)
}
