package main

// commandFaults let a command live on, or see what is the daemon's.
var commandFaults = []mutant{
	{"kill_child_only", test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/tree/timeout_ends_plain"}, []edit{
		{"sandbox/local/proctree/tree.go", "	t.group.kill()\n	t.first.kill()", "	t.first.kill()"},
		{"sandbox/local/proctree/tree.go", "		t.group.signal(syscall.SIGTERM)\n", ""},
	}},
	{"kill_group_only", test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/tree/timeout_ends_setsid"}, []edit{
		{"sandbox/local/proctree/tree.go", "	t.group.kill()\n	t.first.kill()", "	syscall.Kill(-t.first.number(), syscall.SIGKILL)"},
		{"sandbox/local/proctree/tree.go", "		t.group.signal(syscall.SIGTERM)\n", "		syscall.Kill(-t.first.number(), syscall.SIGTERM)\n"},
	}},
	{"wait_blocks_on_pipe", test{"./sandbox/local", "TestAnswerComesBeforeTheChildEnds/auto"}, []edit{
		{"sandbox/local/run.go", "	if r.outputEnds(timer.C) {", "	if r.outputEnds(nil) {"},
	}},
	{"env_inherited", test{"./sandbox/local", "TestExecEnvironment"}, []edit{
		{"sandbox/local/exec.go", `	if wrong != "" {
		return p, invalid`, `	p.env = append(os.Environ(), p.env...)
	if wrong != "" {
		return p, invalid`},
	}},
	{"fd_leaked", test{"./sandbox/local", "TestExecInheritsNothing"}, []edit{
		{"sandbox/local/exec.go", "unix.Pipe2(fds[:], unix.O_CLOEXEC)", "unix.Pipe2(fds[:], 0)"},
	}},
	{"exec_again_after_reconnect", test{"./adapter", "TestNeverRunsACommandTwice"}, []edit{
		{"adapter/keyed.go", "	r, err := send(l, key)\n", "	send(l, uuid.NewString())\n	r, err := send(l, key)\n"},
	}},
}

// callFaults are those of single calls and of tenants among each other.
var callFaults = []mutant{
	{"reply_twice", test{"./rpc/server", "TestEpochEnds"}, []edit{
		{"rpc/server/call.go", "	if cl.answered {", "	if false {"},
	}},
	{"cancel_ignored", test{"./rpc/server", "TestCancel"}, []edit{
		{"rpc/server/dispatch.go", "	case r.Method == rpc.MethodCancel && r.Err == nil:", "	case r.Method == rpc.MethodCancel && r.Err == nil && false:"},
	}},
	{"buffer_unbounded", test{"./rpc/server", "TestBudgetReadWaits"}, []edit{
		{"rpc/server/budget.go", "	if len(b.waiting) == 0 && b.free >= n {", "	if true {"},
	}},
	{"quota_global", test{"./integration", "TestWireTooManyCommands"}, []edit{
		{"sandboxhost/host.go", "calls: &t.calls, execs: &t.execs", `calls: &h.tenant("").calls, execs: &h.tenant("").execs`},
	}},
	{"secret_in_log", test{"./integration", "TestCase_C43"}, []edit{
		{"rpc/server/mint.go", "	return rpc.Transfer{\n		ID:", "	cl.c.s.cfg.Log(\"minted\", \"token\", token)\n	return rpc.Transfer{\n		ID:"},
	}},
	{"keys_forgotten", test{"./work", "TestKeysOverRestarts"}, []edit{
		{"work/memory.go", "	if p.file != nil {\n		var b", "	if false {\n		var b"},
	}},
}
