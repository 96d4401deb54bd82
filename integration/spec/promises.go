package main

// promise is something that holds for the whole, beyond a rule or a bound.
type promise struct {
	says   string
	figure string   // how much the tests below show
	tests  []string // "dir: TestName"
}

func promises() []promise {
	return append(append(ofStreams(), ofCommands()...), ofTheDaemonItself()...)
}

func ofStreams() []promise {
	return []promise{
		{"a transfer is never called good that was not: the count is the verdict, and the end of a connection is none",
			"cuts at every kind of place, by every kind of end", []string{"adapter: TestStreamsThroughCuts", "adapter: TestJudged", "integration: TestClientWantsTheVerdict", "integration: TestWireWriteFailures"}},
		{"under a name there is an old or a new file, whatever dies, and nothing else is left",
			"SIGKILL of the daemon and loss of the client within uploads", []string{"integration: TestCase_C05", "integration: TestKilledDaemonIsSwept", "integration: TestWireMinterGone", "sandbox/local: TestWritesAreAtomic"}},
		{"what was written with sync stands on the disk before the answer",
			"order of system calls; three power cuts, both controls lose writes", []string{"integration: TestWireSyncReachesTheDisk", "integration/guest: TestPowerCut"}},
		{"a token opens one connection, once", "100 that race for one", []string{"transfer: TestTokenIsSingleUse", "integration: TestWireOneTokenOneConnection", "integration: TestCase_C41"}},
		{"bytes between a file and a TCP socket are moved by the kernel", "no read and no write of contents in a trace", []string{"integration: TestZeroCopy"}},
		{"an agent on the same machine hands its files over and moves no bytes", "1 GiB each way beside a trace; 3 GiB and their verdict beside a stopped agent",
			[]string{"integration: TestPassedFilesZeroCopy", "integration: TestPassedFileOfAStoppedAgent", "sandbox/sandboxtest: TestTwoHopsPassedFiles"}},
		{"nobody holds memory by standing still", "100 stalled readers of 1 GiB beside 20 floods of output: 192 MiB, over TLS or a session 300; bytes pushed before hello", []string{"integration: TestStalledReadersAndFloods", "integration: TestCase_C08", "integration: TestWireNothingIsReadAhead", "dataport: TestWaitingReceptionsHoldNoBuffers", "adapter: TestStalledStreamsOfASessionHoldNothingUp", "integration: TestStrangersFloodOfBytes"}},
		{"a hundred uploads at once end right, for an ordinary user, too", "100 at once, 64 pipes", []string{"integration: TestHundredUploadsAtOnce"}},
	}
}

func ofCommands() []promise {
	return []promise{
		{"no process of a command is left when it was ended, however it tried to get away", "13 ways, by timeout, cancel and close, in both kinds of trees",
			[]string{"sandbox/sandboxtest: TestLocal", "sandbox/local: TestNothingSurvives", "sandbox/local: TestNothingBareSurvives", "sandbox/local: TestRelayIsCaught", "sandbox/local: TestCloseKillsWhatLeftTheCgroup", "integration: TestWireExecTreeDies"}},
		{"what a daemon that was killed has left running is found by the next and ended, and nothing of anybody else's",
			"by its marks and its cgroup", []string{"sandbox/local: TestSweep", "sandbox/local/proctree: TestSweepLeavesStrangersAlone", "integration: TestKilledDaemonIsSwept"}},
		{"nobody's exit status is lost, and no zombie stays", "orphans, other children of the same program", []string{"sandbox/local/proctree: TestOrphansAreReaped", "sandbox/local: TestOtherChildrenKeepTheirStatus"}},
		{"no output is lost, and an answer waits for no background child", "fast commands, 16 at once", []string{"sandbox/local: TestNoOutputIsLost", "integration: TestCase_C21", "adapter: TestCase_C22", "integration: TestCase_C11", "integration: TestCase_C12"}},
		{"a command has nothing of the daemon's: no descriptor, no variable, no signal mask", "each of them in a command", []string{"sandbox/local: TestExecInheritsNothing", "sandbox/local: TestExecEnvironment"}},
		{"a command cannot read the memory, environment or descriptors of a daemon that is not root's", "a canary, and a daemon that lets it",
			[]string{"integration: TestCase_C26"}},
		{"no command runs twice, whatever is cut or killed", "cuts of the link and kills of the daemon around each call", []string{"adapter: TestNeverRunsACommandTwice", "integration: TestKilledDaemonsRunNothingTwice", "work: TestKeysOverRestarts"}},
	}
}

func ofTheDaemonItself() []promise {
	return []promise{
		{"no path leads out of a scope, not in a race either, by the kernel's help or by walking", "each race has a control that gets out",
			[]string{"sandbox/local/root: TestRace", "sandbox/local/root: TestOpenInScope", "sandbox/local: TestScope", "integration: TestWireScope"}},
		{"files of clients are opened through the one resolver alone", "every call of package os in the rooms that see clients' paths", []string{"integration: TestNoNakedPaths"}},
		{"no log, error, metric or audit line holds a secret", "a canary in each", []string{"integration: TestCase_C43", "integration: TestWireNoTokenIsTold", "integration: TestAudit"}},
		{"nobody holds up a neighbour", "turns among tenants, for bytes and for commands", []string{"integration: TestWireTenantsTakeTurns", "dataport: TestStalledNeighboursHoldNobodyUp", "fair: TestTurnsGoRound"}},
		{"who has not authenticated costs little and keeps nobody out", "floods of 200 connections and of bytes", []string{"integration: TestStrangersAreFew", "integration: TestStrangersFloodOfBytes", "integration: TestStrangersLeaveDescriptors"}},
		{"out of descriptors the daemon neither spins nor ends", "CPU time beside that of an idle one", []string{"integration: TestOutOfDescriptors"}},
		{"steps of the clock change no outcome", "an hour forth and back, in a guest", []string{"integration/guest: TestClockSteps"}},
		{"a dead peer is noticed, idle and busy, at both ends", "a guest whose wire is cut", []string{"integration/guest: TestDeadPeers", "rpc/server: TestDeadPeers", "integration: TestClientPings"}},
		{"a drain by the book, and one that was told twice to end is quick", "a call and a transfer in flight", []string{"integration: TestDrain", "integration: TestDrainTimeout", "integration: TestSecondSignalStopsAtOnce", "integration: TestWireDrain"}},
		{"every backend behaves alike", "one suite over the local one, TCP, Unix sockets, a session, a pipe and two hops",
			[]string{"sandbox/sandboxtest: TestLocal", "sandbox/sandboxtest: TestTCP", "sandbox/sandboxtest: TestUnix", "sandbox/sandboxtest: TestMux", "sandbox/sandboxtest: TestPipe", "sandbox/sandboxtest: TestTwoHops"}},
		{"rooms import downwards", "go list", []string{"integration: TestLayers", "integration: TestEveryRoomIsInTheTable"}},
		{"a command cannot end, read or change the agent that is process 1 of its sandbox, by signals, tracing or its socket",
			"64 signals in 6 ways each, all of /proc/1, 10,000 connections; limits that it lowers are not among them",
			[]string{"sandboxhost/agent: TestSignalsFromInside", "sandboxhost/agent: TestKillOfEverybody", "sandboxhost/agent: TestSpies", "sandboxhost/agent: TestDefacedProgram", "sandboxhost/agent: TestFloodFromInside"}},
		{"a sandbox gets a program that needs nothing of its image and that no command learns anything from", "its size, its segments; descriptors, variables and files of a command",
			[]string{"sandboxhost/agent: TestProgramIsSmallAndStatic", "sandboxhost/agent: TestCommandsGetNothing"}},
		{"each of these tests can fail", "30 faults put into a copy, each noticed by the test that is named for it", []string{"integration/mutants/faults: TestEditsStillApply"}},
	}
}
