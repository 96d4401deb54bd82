package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/controld/controld/dataport"
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
	// Cgroups tells the host driver how to hold process trees: auto or off.
	Cgroups string `koanf:"cgroups"`
	// ExecMemory and ExecProcesses bound each command; 0 is no bound. The
	// daemon does not start where cgroups cannot hold them.
	ExecMemory    int64 `koanf:"exec-memory"`
	ExecProcesses int64 `koanf:"exec-processes"`
	// Insecure allows to listen in the clear beyond this machine.
	Insecure bool `koanf:"insecure"`
	// ReadyFile is written when every listener accepts.
	ReadyFile string `koanf:"ready-file"`

	DrainTimeout time.Duration `koanf:"drain-timeout"`
	StallTimeout time.Duration `koanf:"stall-timeout"`
	WriteTimeout time.Duration `koanf:"write-timeout"`
	TokenTTL     time.Duration `koanf:"token-ttl"`
	KeptOutcomes time.Duration `koanf:"kept-outcomes"`

	MaxConnections           int   `koanf:"max-connections"`
	MaxCalls                 int   `koanf:"max-calls"`
	MaxExecs                 int   `koanf:"max-execs"`
	MaxTransfers             int   `koanf:"max-transfers"`
	MaxTokens                int   `koanf:"max-tokens"`
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

		DrainTimeout: 30 * time.Second,
		StallTimeout: l.StallTimeout,
		WriteTimeout: l.WriteTimeout,
		TokenTTL:     l.TokenTTL,
		KeptOutcomes: l.KeptOutcomes,

		MaxConnections:           1024,
		MaxCalls:                 1024,
		MaxExecs:                 512,
		MaxTransfers:             1024,
		MaxTokens:                1024,
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
	return l
}

func (c Config) quotas() sandboxhost.Quotas {
	return sandboxhost.Quotas{Connections: c.MaxConnections, Calls: c.MaxCalls, Execs: c.MaxExecs, BytesPerSecond: c.MaxBytesPerSecond}
}

// driver returns the one that the configuration names.
func (c Config) driver() host.Driver {
	return host.Driver{Cgroups: local.Cgroups(c.Cgroups), Each: local.Each{Memory: c.ExecMemory, Processes: c.ExecProcesses}}
}

// Check tells what is wrong with a configuration, without touching anything.
func (c Config) Check() error {
	if c.Tokens == "" {
		return fmt.Errorf("tokens: no token file; say --tokens FILE (controld token new makes one) or --dev")
	}
	if c.Driver != host.Name {
		return fmt.Errorf("driver: %q is unknown; there is %s", c.Driver, host.Name)
	}
	if c.Cgroups != string(local.CgroupsAuto) && c.Cgroups != string(local.CgroupsOff) {
		return fmt.Errorf("cgroups: %q is neither auto nor off", c.Cgroups)
	}
	if len(c.Control) == 0 || len(c.Data) == 0 {
		return fmt.Errorf("control, data: at least one URL each")
	}
	if err := c.checkURLs(); err != nil {
		return err
	}
	if err := c.checkNumbers(); err != nil {
		return err
	}
	if _, err := parseLevel(c.LogLevel); err != nil {
		return fmt.Errorf("log-level: %q is none of debug, info, warn, error", c.LogLevel)
	}
	switch c.LogFormat {
	case "auto", "console", "json":
	default:
		return fmt.Errorf("log-format: %q is none of auto, console, json", c.LogFormat)
	}
	return nil
}

func (c Config) checkURLs() error {
	named := map[string][]string{"control": c.Control, "data": c.Data}
	if c.Admin != "" {
		named["admin"] = []string{c.Admin}
	}
	for _, key := range []string{"control", "data", "admin"} {
		for _, u := range named[key] {
			e, err := dataport.ParseEndpoint(u)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if !e.Private() && !e.Encrypted() && !c.Insecure {
				return fmt.Errorf("%s: %s would speak in the clear beyond this machine; say --insecure if that is meant", key, u)
			}
		}
	}
	for _, u := range c.AdvertiseData {
		if _, err := dataport.ParseEndpoint(u); err != nil {
			return fmt.Errorf("advertise-data: %w", err)
		}
	}
	return nil
}

func (c Config) checkNumbers() error {
	for key, d := range map[string]time.Duration{
		"drain-timeout": c.DrainTimeout, "stall-timeout": c.StallTimeout, "write-timeout": c.WriteTimeout,
		"token-ttl": c.TokenTTL, "kept-outcomes": c.KeptOutcomes,
	} {
		if d <= 0 {
			return fmt.Errorf("%s: %v is no positive duration", key, d)
		}
	}
	for key, n := range map[string]int64{
		"max-connections": int64(c.MaxConnections), "max-calls": int64(c.MaxCalls), "max-execs": int64(c.MaxExecs), "max-transfers": int64(c.MaxTransfers),
		"max-tokens":        int64(c.MaxTokens),
		"max-message-bytes": c.MaxMessageBytes, "max-inflight": int64(c.MaxInflight), "max-queued": int64(c.MaxQueued),
		"max-waiting-transfers": int64(c.MaxWaitingTransfers), "max-batch": int64(c.MaxBatch),
		"max-buffered-bytes": c.MaxBufferedBytes, "max-output-bytes": c.MaxOutputBytes,
		"max-buffered-inflight-bytes": c.MaxBufferedInflightBytes,
	} {
		if n <= 0 {
			return fmt.Errorf("%s: %d is not above 0", key, n)
		}
	}
	for key, n := range map[string]int64{"max-splices": int64(c.MaxSplices), "max-bytes-per-second": c.MaxBytesPerSecond,
		"exec-memory": c.ExecMemory, "exec-processes": c.ExecProcesses} {
		if n < 0 {
			return fmt.Errorf("%s: %d is below 0", key, n)
		}
	}
	return nil
}
