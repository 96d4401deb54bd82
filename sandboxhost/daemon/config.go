package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/host"
)

// Config is everything that can be said to a daemon. The keys are those of
// the configuration file and, with dashes, of the flags.
type Config struct {
	// Control and Data are URLs to listen on; port 0 picks a free one.
	Control []string `koanf:"control"`
	Data    []string `koanf:"data"`
	// AdvertiseData are the URLs told to clients instead of Data.
	AdvertiseData []string `koanf:"advertise-data"`
	// Admin is the URL of health and metrics; none where empty.
	Admin    string `koanf:"admin"`
	StateDir string `koanf:"state-dir"`
	// Tokens is the file of grants, see sandboxhost.ParseTokens.
	Tokens string `koanf:"tokens"`
	// Driver is the kind of isolation.
	Driver string `koanf:"driver"`
	// Network is what sandboxes reach: none or host; the driver's own choice
	// where empty.
	Network string `koanf:"network"`
	// Image is what the docker driver makes a sandbox's root from; the host's
	// own programs, read-only, where empty.
	Image string `koanf:"image"`
	// SandboxMemory in bytes, SandboxProcesses and SandboxCPUs bound each
	// sandbox; 0 is no bound. A driver that cannot hold them starts none.
	SandboxMemory    int64   `koanf:"sandbox-memory"`
	SandboxProcesses int64   `koanf:"sandbox-processes"`
	SandboxCPUs      float64 `koanf:"sandbox-cpus"`
	// IdleStop is how long a sandbox lives that nobody uses, MaxLife how long
	// it lives at all unless it is extended; 0 is for ever.
	IdleStop time.Duration `koanf:"idle-stop"`
	MaxLife  time.Duration `koanf:"max-life"`
	// Pool is how many sandboxes are kept ready for a first hello.
	Pool int `koanf:"pool"`
	// HealthInterval is how long an agent may be silent before it is asked for
	// a sign of life, 0 for ever; behind HealthMisses such intervals without
	// one its sandbox is ended.
	HealthInterval time.Duration `koanf:"health-interval"`
	HealthMisses   int           `koanf:"health-misses"`
	// Tiers are other ways of making sandboxes, NAME=KEY:VALUE,... each; what
	// one does not name is as said here. TenantTiers are TENANT=NAME.
	Tiers       []string `koanf:"tier"`
	TenantTiers []string `koanf:"tenant-tier"`
	// Agent is the program that runs inside sandboxes; this one where empty.
	Agent string `koanf:"agent"`
	// Runtime is the program of the oci driver, Engine the URL of the docker
	// driver's; the usual ones where empty.
	Runtime string `koanf:"runtime"`
	Engine  string `koanf:"engine"`
	// CgroupParent is the cgroup below which sandboxes have theirs; the
	// driver's choice where empty.
	CgroupParent string `koanf:"cgroup-parent"`
	// Cgroups tells the host driver how to hold process trees: auto or off.
	Cgroups string `koanf:"cgroups"`
	// ExecMemory and ExecProcesses bound each command; 0 is no bound. The
	// daemon does not start where cgroups cannot hold them.
	ExecMemory    int64 `koanf:"exec-memory"`
	ExecProcesses int64 `koanf:"exec-processes"`
	// TLSCert and TLSKey are the PEM files of what tls endpoints show.
	TLSCert string `koanf:"tls-cert"`
	TLSKey  string `koanf:"tls-key"`
	// TLSClientCA is the PEM file of those who sign clients' certificates;
	// with it every tls endpoint asks for one.
	TLSClientCA string `koanf:"tls-client-ca"`
	// TLSClientDeny is a file of SHA-256 sums of certificates that are not
	// accepted all the same.
	TLSClientDeny string `koanf:"tls-client-deny"`
	// TLSClientLogin lets a client certificate stand for a token.
	TLSClientLogin bool `koanf:"tls-client-login"`
	// Insecure allows to listen in the clear beyond this machine.
	Insecure bool `koanf:"insecure"`
	// InsecureDataFrom are the networks whose peers plain data endpoints
	// accept; with it these may listen beyond this machine.
	InsecureDataFrom []string `koanf:"insecure-data-from"`
	// UnixAllowUID are users whose processes Unix sockets accept, beside the
	// daemon's own and root.
	UnixAllowUID []int `koanf:"unix-allow-uid"`
	// AuditLog is the file that takes who did what; none where empty.
	AuditLog string `koanf:"audit-log"`
	// ReadyFile is written when every listener accepts.
	ReadyFile string `koanf:"ready-file"`

	DrainTimeout time.Duration `koanf:"drain-timeout"`
	StallTimeout time.Duration `koanf:"stall-timeout"`
	WriteTimeout time.Duration `koanf:"write-timeout"`
	TokenTTL     time.Duration `koanf:"token-ttl"`
	KeptOutcomes time.Duration `koanf:"kept-outcomes"`
	// ReconnectGrace is how long a call with a key goes on when nobody waits
	// for it.
	ReconnectGrace time.Duration `koanf:"reconnect-grace"`

	// MaxUnauthenticated bounds the connections that have not authenticated,
	// MaxUnauthenticatedEach those of one source; 0 is no bound.
	MaxUnauthenticated     int `koanf:"max-unauthenticated"`
	MaxUnauthenticatedEach int `koanf:"max-unauthenticated-each"`
	// MaxFailedHellos, MaxFailedHandshakes and MaxFailedTokens are the
	// failures of one source in FailureWindow behind which it is kept out, at
	// most FailureWait long; 0 is never.
	MaxFailedHellos     int           `koanf:"max-failed-hellos"`
	MaxFailedHandshakes int           `koanf:"max-failed-handshakes"`
	MaxFailedTokens     int           `koanf:"max-failed-tokens"`
	FailureWindow       time.Duration `koanf:"failure-window"`
	FailureWait         time.Duration `koanf:"failure-wait"`

	MaxConnections           int   `koanf:"max-connections"`
	MaxCalls                 int   `koanf:"max-calls"`
	MaxExecs                 int   `koanf:"max-execs"`
	MaxTransfers             int   `koanf:"max-transfers"`
	MaxTokens                int   `koanf:"max-tokens"`
	MaxRequestKeys           int   `koanf:"max-request-keys"`
	MaxMessageBytes          int64 `koanf:"max-message-bytes"`
	MaxInflight              int   `koanf:"max-inflight"`
	MaxQueued                int   `koanf:"max-queued"`
	MaxWaitingTransfers      int   `koanf:"max-waiting-transfers"`
	MaxBatch                 int   `koanf:"max-batch"`
	MaxBufferedBytes         int64 `koanf:"max-buffered-bytes"`
	MaxOutputBytes           int64 `koanf:"max-output-bytes"`
	MaxBufferedInflightBytes int64 `koanf:"max-buffered-inflight-bytes"`
	// MaxBytesPerSecond is what the transfers of one tenant move in all; 0 is
	// as fast as it goes.
	MaxBytesPerSecond int64 `koanf:"max-bytes-per-second"`
	// MaxSplices bounds the pipes that uploads hold at once; 0 is 48 for an
	// ordinary user, who gets only 64 large ones, and unbounded for root.
	MaxSplices int `koanf:"max-splices"`

	LogLevel  string `koanf:"log-level"`
	LogFormat string `koanf:"log-format"`
	// Pprof serves profiles on the admin port.
	Pprof bool `koanf:"pprof"`
	// Traceable lets processes of the daemon's own user, commands among them,
	// trace and read it; whoever runs the daemon sees to it.
	Traceable bool `koanf:"traceable"`
}

// Default returns the configuration without any word of the operator's.
func Default() Config {
	l := sandbox.DefaultLimits()
	return Config{
		Control:  []string{"tcp://127.0.0.1:7071"},
		Data:     []string{"tcp://127.0.0.1:7072"},
		StateDir: "/var/lib/controld",
		Driver:   host.Name,
		Cgroups:  string(local.CgroupsAuto),

		HealthInterval: 15 * time.Second,
		HealthMisses:   4,

		DrainTimeout: 30 * time.Second,
		StallTimeout: l.StallTimeout,
		WriteTimeout: l.WriteTimeout,
		TokenTTL:     l.TokenTTL,
		KeptOutcomes: l.KeptOutcomes,

		ReconnectGrace: l.ReconnectGrace,

		MaxUnauthenticated:     8192,
		MaxUnauthenticatedEach: 2048,
		MaxFailedHellos:        1000,
		MaxFailedHandshakes:    100,
		MaxFailedTokens:        10000,
		FailureWindow:          time.Minute,
		FailureWait:            time.Minute,

		MaxConnections:           1024,
		MaxCalls:                 1024,
		MaxExecs:                 512,
		MaxTransfers:             1024,
		MaxTokens:                1024,
		MaxRequestKeys:           1 << 20,
		MaxMessageBytes:          l.MaxMessageBytes,
		MaxInflight:              l.MaxInflight,
		MaxQueued:                l.MaxQueued,
		MaxWaitingTransfers:      l.MaxWaitingTransfers,
		MaxBatch:                 l.MaxBatch,
		MaxBufferedBytes:         l.MaxBufferedBytes,
		MaxOutputBytes:           l.MaxOutputBytes,
		MaxBufferedInflightBytes: l.MaxBufferedInflightBytes,

		LogLevel:  "info",
		LogFormat: "auto",
	}
}

// UserStateDir is $XDG_STATE_HOME/controld, where serve --dev keeps its state
// and the client commands find it.
func UserStateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "controld"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for state: set XDG_STATE_HOME: %w", err)
	}
	return filepath.Join(home, ".local", "state", "controld"), nil
}

// Limits are the bounds that the protocol names.
func (c Config) Limits() sandbox.Limits {
	l := sandbox.DefaultLimits()
	l.MaxMessageBytes, l.MaxInflight, l.MaxQueued = c.MaxMessageBytes, c.MaxInflight, c.MaxQueued
	l.MaxWaitingTransfers, l.MaxBatch = c.MaxWaitingTransfers, c.MaxBatch
	l.MaxBufferedBytes, l.MaxOutputBytes = c.MaxBufferedBytes, c.MaxOutputBytes
	l.MaxBufferedInflightBytes = c.MaxBufferedInflightBytes
	l.WriteTimeout, l.TokenTTL = c.WriteTimeout, c.TokenTTL
	l.StallTimeout, l.KeptOutcomes = c.StallTimeout, c.KeptOutcomes
	l.ReconnectGrace = c.ReconnectGrace
	return l
}

func (c Config) quotas() sandboxhost.Quotas {
	return sandboxhost.Quotas{Connections: c.MaxConnections, Calls: c.MaxCalls, Execs: c.MaxExecs, BytesPerSecond: c.MaxBytesPerSecond}
}

// box is what sandboxes are made of.
func (c Config) box() sandboxhost.Box {
	return sandboxhost.Box{Image: c.Image, Memory: c.SandboxMemory, Processes: c.SandboxProcesses, CPUs: c.SandboxCPUs,
		Network: sandboxhost.Network(c.Network)}
}

// plainDataFrom are the networks of InsecureDataFrom.
func (c Config) plainDataFrom() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range c.InsecureDataFrom {
		network, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("insecure-data-from: %q is no network such as 10.0.0.0/8", s)
		}
		out = append(out, network.Masked())
	}
	return out, nil
}

// gateLimits bound those who have not authenticated. Most descriptors are kept
// for those who have.
func (c Config) gateLimits() gate.Limits {
	l := gate.Limits{
		Strangers: c.MaxUnauthenticated, StrangersEach: c.MaxUnauthenticatedEach,
		Hellos: c.MaxFailedHellos, Handshakes: c.MaxFailedHandshakes, Tokens: c.MaxFailedTokens,
		Window: c.FailureWindow, Longest: c.FailureWait,
	}
	if quarter := descriptors() / 4; l.Strangers == 0 || l.Strangers > quarter {
		l.Strangers = max(quarter, 1)
	}
	return l
}
