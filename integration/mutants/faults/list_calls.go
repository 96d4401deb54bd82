package faults

// commandFaults let a command live on, or see what is the daemon's.
var commandFaults = []Fault{
	{"kill_child_only", Test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/tree/timeout_ends_plain"}, []Edit{
		{"sandbox/local/proctree/tree.go", "	t.group.kill()\n	t.first.kill()", "	t.first.kill()"},
		{"sandbox/local/proctree/tree.go", "		t.group.signal(syscall.SIGTERM)\n", ""},
	}},
	{"kill_group_only", Test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/tree/timeout_ends_setsid"}, []Edit{
		{"sandbox/local/proctree/tree.go", "	t.group.kill()\n	t.first.kill()", "	syscall.Kill(-t.first.number(), syscall.SIGKILL)"},
		{"sandbox/local/proctree/tree.go", "		t.group.signal(syscall.SIGTERM)\n", "		syscall.Kill(-t.first.number(), syscall.SIGTERM)\n"},
	}},
	{"wait_blocks_on_pipe", Test{"./sandbox/local", "TestAnswerComesBeforeTheChildEnds/auto"}, []Edit{
		{"sandbox/local/run.go", "	if r.outputEnds(timer.C) {", "	if r.outputEnds(nil) {"},
	}},
	{"env_inherited", Test{"./sandbox/local", "TestExecEnvironment"}, []Edit{
		{"sandbox/local/exec.go", `	if wrong != "" {
		return p, invalid`, `	p.env = append(os.Environ(), p.env...)
	if wrong != "" {
		return p, invalid`},
	}},
	{"fd_leaked", Test{"./sandbox/local", "TestExecInheritsNothing"}, []Edit{
		{"sandbox/local/exec.go", "unix.Pipe2(fds[:], unix.O_CLOEXEC)", "unix.Pipe2(fds[:], 0)"},
	}},
	{"daemon_readable", Test{"./integration", "TestCase_C26"}, []Edit{
		{"cmd/controld/serve.go", "	if !cfg.Traceable {", "	if false {"},
	}},
	{"keeper_leaves_trees", Test{"./sandbox/local", "TestKeeperOutlivesTheKilled"}, []Edit{
		{"sandbox/local/proctree/keep.go", "		k.finish()\n", ""},
	}},
	{"exec_again_after_reconnect", Test{"./adapter", "TestNeverRunsACommandTwice"}, []Edit{
		{"adapter/keyed.go", "	r, err := send(l, key)\n", "	send(l, uuid.NewString())\n	r, err := send(l, key)\n"},
	}},
}

// callFaults are those of single calls and of tenants among each other.
var callFaults = []Fault{
	{"reply_twice", Test{"./rpc/server", "TestEpochEnds"}, []Edit{
		{"rpc/server/call.go", "	if cl.answered {", "	if false {"},
	}},
	{"cancel_ignored", Test{"./rpc/server", "TestCancel"}, []Edit{
		{"rpc/server/dispatch.go", "	case r.Method == rpc.MethodCancel && r.Err == nil:", "	case r.Method == rpc.MethodCancel && r.Err == nil && false:"},
	}},
	{"buffer_unbounded", Test{"./rpc/server", "TestBudgetReadWaits"}, []Edit{
		{"rpc/server/budget.go", "	if len(b.waiting) == 0 && b.free >= n {", "	if true {"},
	}},
	{"quota_global", Test{"./integration", "TestWireTooManyCommands"}, []Edit{
		{"sandboxhost/host.go", "calls: &t.calls, execs: &t.execs", `calls: &h.tenant("").calls, execs: &h.tenant("").execs`},
	}},
	{"secret_in_log", Test{"./integration", "TestCase_C43"}, []Edit{
		{"rpc/server/mint.go", "	return rpc.Transfer{\n		ID:", "	cl.c.s.cfg.Log(\"minted\", \"token\", token)\n	return rpc.Transfer{\n		ID:"},
	}},
	{"keys_forgotten", Test{"./work", "TestKeysOverRestarts"}, []Edit{
		{"work/memory.go", "	if p.file != nil {\n		var b", "	if false {\n		var b"},
	}},
}
