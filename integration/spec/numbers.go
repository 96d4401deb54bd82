package main

import (
	"fmt"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandboxhost/daemon"
	"github.com/controld/controld/transfer"
	"github.com/controld/controld/work"
)

// number is a bound or a time.
type number struct {
	name   string // of the daemon's setting, empty where it is fixed
	value  string
	bounds string
	rule   string   // of docs/protocol.md; its tests are named where tests is empty
	tests  []string // "dir: TestName"
}

// testsIn returns the tests of a number among those found.
func (n number) testsIn(found tests) []string {
	if len(n.tests) > 0 {
		return n.tests
	}
	return found.of(n.rule)
}

func numbers() []number {
	return append(append(ofTheDaemon(daemon.Default()), ofTheProtocol()...), ofTheClient()...)
}

// ofTheDaemon are the numbers that an operator can set.
func ofTheDaemon(c daemon.Config) []number {
	return []number{
		{name: "max-unauthenticated", value: count(c.MaxUnauthenticated), bounds: "strangers at once, in all", rule: "P13.3"},
		{name: "max-unauthenticated-each", value: count(c.MaxUnauthenticatedEach), bounds: "strangers at once, of one source", rule: "P13.2"},
		{name: "max-failed-hellos", value: count(c.MaxFailedHellos), bounds: "failed hellos of a source in a window", rule: "P13.4"},
		{name: "max-failed-handshakes", value: count(c.MaxFailedHandshakes), bounds: "failed TLS handshakes of a source in a window", rule: "P13.6"},
		{name: "max-failed-tokens", value: count(c.MaxFailedTokens), bounds: "tokens of a source in a window that never were", rule: "P13.5"},
		{name: "failure-window", value: span(c.FailureWindow), bounds: "the window of failures", rule: "P13.7"},
		{name: "failure-wait", value: span(c.FailureWait), bounds: "how long a source is kept out at most", rule: "P13.4"},

		{name: "max-connections", value: count(c.MaxConnections), bounds: "control connections of a tenant", rule: "P15.1"},
		{name: "max-calls", value: count(c.MaxCalls), bounds: "calls of a tenant that run", rule: "P15.2"},
		{name: "max-execs", value: count(c.MaxExecs), bounds: "commands of a tenant that run", rule: "P15.3"},
		{name: "max-tokens", value: count(c.MaxTokens), bounds: "transfers of a tenant that wait for their connection", rule: "P15.4"},
		{name: "max-transfers", value: count(c.MaxTransfers), bounds: "living transfers of a tenant", rule: "P10.10"},
		{name: "max-request-keys", value: count(c.MaxRequestKeys), bounds: "request keys of a tenant that are remembered", rule: "P14.9"},
		{name: "max-bytes-per-second", value: unbounded(c.MaxBytesPerSecond), bounds: "bytes a second of all transfers of a tenant", rule: "P15.5"},
		{name: "max-buffered-inflight-bytes", value: bytesOf(c.MaxBufferedInflightBytes), bounds: "what buffered calls of a tenant hold in memory", rule: "P5.10"},
		{name: "max-splices", value: unbounded(c.MaxSplices), bounds: "uploads that hold a pipe at once; 48 for an ordinary user",
			tests: []string{"integration: TestHundredUploadsAtOnce"}},

		{name: "max-message-bytes", value: bytesOf(c.MaxMessageBytes), bounds: "a line, either way", rule: "P3.7"},
		{name: "max-inflight", value: count(c.MaxInflight), bounds: "calls of a connection that run", rule: "P4.1"},
		{name: "max-queued", value: count(c.MaxQueued), bounds: "calls of a connection that wait", rule: "P4.2"},
		{name: "max-waiting-transfers", value: count(c.MaxWaitingTransfers), bounds: "results and commits of a connection that wait", rule: "P4.4"},
		{name: "max-batch", value: count(c.MaxBatch), bounds: "requests of a batch", rule: "P3.20"},
		{name: "max-buffered-bytes", value: bytesOf(c.MaxBufferedBytes), bounds: "the content of a buffered read", rule: "P8.21"},
		{name: "max-output-bytes", value: bytesOf(c.MaxOutputBytes), bounds: "each output of a command that is kept", rule: "P9.12"},

		{name: "token-ttl", value: span(c.TokenTTL), bounds: "the life of a token that nobody takes", rule: "P10.5"},
		{name: "kept-outcomes", value: span(c.KeptOutcomes), bounds: "how long the outcome of a transfer is told", rule: "P10.8"},
		{name: "stall-timeout", value: span(c.StallTimeout), bounds: "a transfer without progress", rule: "P10.45"},
		{name: "write-timeout", value: span(c.WriteTimeout), bounds: "a peer that takes no byte of an answer", rule: "P4.7"},
		{name: "reconnect-grace", value: span(c.ReconnectGrace), bounds: "a call with a key that nobody waits for", rule: "P14.10"},
		{name: "drain-timeout", value: span(c.DrainTimeout), bounds: "a drain", rule: "P12.5"},

		{name: "exec-memory", value: unbounded(c.ExecMemory), bounds: "the memory of each command", rule: "P9.16"},
		{name: "exec-processes", value: unbounded(c.ExecProcesses), bounds: "the processes of each command", rule: "P9.16"},
		{name: "sandbox-memory", value: unbounded(c.SandboxMemory), bounds: "the memory of each sandbox", rule: "P16.6"},
		{name: "sandbox-processes", value: unbounded(c.SandboxProcesses), bounds: "the processes of each sandbox", rule: "P16.6"},
		{name: "sandbox-cpus", value: unbounded(int64(c.SandboxCPUs)), bounds: "the processors of each sandbox", rule: "P16.6"},
		{name: "health-interval", value: span(c.HealthInterval), bounds: "the silence of an agent until it is asked", rule: "P16.10"},
		{name: "health-misses", value: count(c.HealthMisses), bounds: "intervals in which it may not answer", rule: "P16.10"},
		{name: "pool", value: count(c.Pool), bounds: "sandboxes that are kept ready", rule: "P17.16"},
		{name: "idle-stop", value: forEver(c.IdleStop), bounds: "the life of a sandbox that nobody uses", rule: "P17.11"},
		{name: "max-life", value: forEver(c.MaxLife), bounds: "the life of a sandbox that nobody extends", rule: "P17.12"},
	}
}

// ofTheProtocol are the numbers that are the same everywhere.
func ofTheProtocol() []number {
	return []number{
		{value: bytesOf(rpc.MaxHelloLine), bounds: "a line before hello", rule: "P3.4"},
		{value: count(rpc.MaxDepth), bounds: "arrays and objects within one another", rule: "P3.3"},
		{value: bytesOf(rpc.MaxIDBytes), bounds: "the id of a request", rule: "P3.14"},
		{value: span(rpc.MaxExecTimeout), bounds: "the time limit of a command, and its grace", rule: "P9.8"},
		{value: span(rpc.MaxSandboxExtend), bounds: "what an extension of a sandbox's life takes at once", rule: "P17.10"},
		{value: span(server.HelloTimeout), bounds: "from the accept to a successful hello", rule: "P3.5"},
		{value: span(server.HelloTimeout), bounds: "from the accept to a whole preamble", rule: "P11.1"},
		{value: bytesOf(server.UnreadReplies), bounds: "answers that a peer has not read", rule: "P4.6"},
		{value: count(server.MaxStreams), bounds: "streams of a multiplexed session", rule: "P2.15"},
		{value: bytesOf(dataport.MuxWindow), bounds: "what a stalled stream of a session holds", rule: "P2.13"},
		{value: bytesOf(dataport.LingerBytes) + ", " + span(dataport.LingerTime), bounds: "what is read and dropped behind a last answer", rule: "P4.16"},
		{value: span(dataport.DeadPeerTimeout), bounds: "until a dead peer is noticed", rule: "P4.15"},
		{value: span(daemon.HangPatience), bounds: "how long an end waits for a call that the system does not give back", rule: "P12.5"},
		{value: count(transfer.MaxKept), bounds: "outcomes of a tenant that are kept", rule: "P10.9"},
		{value: span(transfer.FetchGrace), bounds: "how long a drain waits for verdicts to be fetched", rule: "P12.4"},
		{value: span(work.KeptFor) + ", " + count(work.MaxAnswers) + ", " + bytesOf(work.MaxAnswerBytes), bounds: "answers to calls with keys that are kept", rule: "P14.6"},
		{value: span(work.Remember), bounds: "how long a key is known at least", rule: "P14.7"},
	}
}

// ofTheClient are the numbers of the Go client.
func ofTheClient() []number {
	return []number{
		{value: span(rpc.DefaultPingInterval) + ", " + span(rpc.DefaultPingTimeout), bounds: "silence of the server until it is asked, and until it is given up", rule: "P4.17"},
		{value: span(rpc.DefaultCancelTimeout), bounds: "a cancelled call that waits for the server's word", tests: []string{"rpc: TestCancelUnanswered"}},
		{value: bytesOf(adapter.InlineMax), bounds: "a content that travels as JSON", tests: []string{"integration: TestInlineMaxHoldsForFilesOfNoSize"}},
		{value: span(adapter.DialTimeout), bounds: "one attempt to connect and say hello", tests: []string{"adapter: TestDialTimeout"}},
		{value: span(adapter.RetryFor), bounds: "how long a call with a key waits for another connection", tests: []string{"adapter: TestGivesUp"}},
	}
}

// count writes 1048576 as 1,048,576.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}

func unbounded[T int | int64](n T) string {
	if n == 0 {
		return "no bound"
	}
	return count(int(n))
}

func forEver(d time.Duration) string {
	if d == 0 {
		return "no bound"
	}
	return span(d)
}

// bytesOf writes a number of bytes in the largest unit that it is a multiple of.
func bytesOf[T int | int64](n T) string {
	unit := 0
	for ; unit < 3 && n >= 1024 && n%1024 == 0; unit++ {
		n /= 1024
	}
	return fmt.Sprintf("%d %s", n, [...]string{"bytes", "KiB", "MiB", "GiB"}[unit])
}

func span(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%v s", d.Seconds())
}
