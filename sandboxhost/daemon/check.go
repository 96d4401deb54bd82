package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/host"
)

// Check tells what is wrong with a configuration, without touching anything.
func (c Config) Check() error {
	if c.Tokens == "" {
		return fmt.Errorf("tokens: no token file; say --tokens FILE (controld token new makes one) or --dev")
	}
	if err := c.checkDriver(); err != nil {
		return err
	}
	if c.Cgroups != string(local.CgroupsAuto) && c.Cgroups != string(local.CgroupsOff) {
		return fmt.Errorf("cgroups: %q is neither auto nor off", c.Cgroups)
	}
	if len(c.Control) == 0 || len(c.Data) == 0 {
		return fmt.Errorf("control, data: at least one URL each")
	}
	for _, err := range []error{c.checkTLS(), c.checkURLs(), c.checkNetworks()} {
		if err != nil {
			return err
		}
	}
	for _, err := range []error{c.checkNumbers(), c.checkTiers()} {
		if err != nil {
			return err
		}
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

func (c Config) checkDriver() error {
	if !slices.Contains(driverNames, c.Driver) {
		return fmt.Errorf("driver: %q is unknown; there is %s", c.Driver, strings.Join(driverNames, ", "))
	}
	switch network := sandboxhost.Network(c.Network); {
	case c.Driver == host.Name && c.box() != (sandboxhost.Box{}):
		return fmt.Errorf("image, network, sandbox-...: the driver %s has no sandbox around its commands", host.Name)
	case c.Driver == host.Name && c.Pool > 0:
		return fmt.Errorf("pool: the driver %s starts at once and keeps nothing ready", host.Name)
	case !network.Known():
		return fmt.Errorf("network: %q is neither none nor host", network)
	case !(c.SandboxCPUs >= 0): // nor NaN
		return fmt.Errorf("sandbox-cpus: %v is below 0", c.SandboxCPUs)
	case c.Driver != host.Name && (c.ExecMemory > 0 || c.ExecProcesses > 0):
		return fmt.Errorf("exec-memory, exec-processes: the driver %s bounds no single command", c.Driver)
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
			if err := c.checkReach(key, u, e); err != nil {
				return err
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

// checkReach refuses to speak in the clear beyond this machine.
func (c Config) checkReach(key, url string, e dataport.Endpoint) error {
	switch {
	case e.Private() || e.Encrypted() || c.Insecure:
		return nil
	case key == "data" && len(c.InsecureDataFrom) > 0:
		return nil
	case key == "data":
		return fmt.Errorf("%s: %s would speak in the clear beyond this machine; say --insecure if that is meant, or --insecure-data-from NETWORK, or tls://", key, url)
	}
	return fmt.Errorf("%s: %s would speak in the clear beyond this machine; say --insecure if that is meant, or tls://", key, url)
}

// checkCertificate wants one where a tls URL is listened on. It is no part of
// Check: a file may leave the certificate to a flag.
func (c Config) checkCertificate() error {
	for _, u := range slices.Concat(c.Control, c.Data, []string{c.Admin}) {
		if e, err := dataport.ParseEndpoint(u); err == nil && e.Encrypted() && c.TLSCert == "" {
			return fmt.Errorf("%s needs --tls-cert and --tls-key", u)
		}
	}
	return nil
}

func (c Config) checkTLS() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return fmt.Errorf("tls-cert, tls-key: one does not go without the other")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return fmt.Errorf("tls-client-ca: there is no --tls-cert to go with it")
	case c.TLSClientDeny != "" && c.TLSClientCA == "":
		return fmt.Errorf("tls-client-deny: there is no --tls-client-ca to go with it")
	case c.TLSClientLogin && c.TLSClientCA == "":
		return fmt.Errorf("tls-client-login: there is no --tls-client-ca to go with it")
	}
	return nil
}

func (c Config) checkNetworks() error {
	if _, err := c.plainDataFrom(); err != nil {
		return err
	}
	for _, uid := range c.UnixAllowUID {
		if uid < 0 {
			return fmt.Errorf("unix-allow-uid: %d is no user", uid)
		}
	}
	return nil
}

func (c Config) checkNumbers() error {
	for key, d := range map[string]time.Duration{
		"drain-timeout": c.DrainTimeout, "stall-timeout": c.StallTimeout, "write-timeout": c.WriteTimeout,
		"token-ttl": c.TokenTTL, "kept-outcomes": c.KeptOutcomes, "reconnect-grace": c.ReconnectGrace,
		"failure-window": c.FailureWindow, "failure-wait": c.FailureWait,
	} {
		if d <= 0 {
			return fmt.Errorf("%s: %v is no positive duration", key, d)
		}
	}
	for key, d := range map[string]time.Duration{"idle-stop": c.IdleStop, "max-life": c.MaxLife, "health-interval": c.HealthInterval} {
		if d < 0 {
			return fmt.Errorf("%s: %v is below 0", key, d)
		}
	}
	for key, n := range map[string]int64{
		"max-connections": int64(c.MaxConnections), "max-calls": int64(c.MaxCalls), "max-execs": int64(c.MaxExecs),
		"max-transfers": int64(c.MaxTransfers), "max-tokens": int64(c.MaxTokens),
		"health-misses":     int64(c.HealthMisses),
		"max-request-keys":  int64(c.MaxRequestKeys),
		"max-message-bytes": c.MaxMessageBytes, "max-inflight": int64(c.MaxInflight), "max-queued": int64(c.MaxQueued),
		"max-waiting-transfers": int64(c.MaxWaitingTransfers), "max-batch": int64(c.MaxBatch),
		"max-buffered-bytes": c.MaxBufferedBytes, "max-output-bytes": c.MaxOutputBytes,
		"max-buffered-inflight-bytes": c.MaxBufferedInflightBytes,
	} {
		if n <= 0 {
			return fmt.Errorf("%s: %d is not above 0", key, n)
		}
	}
	for key, n := range map[string]int64{
		"max-splices": int64(c.MaxSplices), "pool": int64(c.Pool), "max-bytes-per-second": c.MaxBytesPerSecond,
		"exec-memory": c.ExecMemory, "exec-processes": c.ExecProcesses,
		"sandbox-memory": c.SandboxMemory, "sandbox-processes": c.SandboxProcesses,
		"max-unauthenticated": int64(c.MaxUnauthenticated), "max-unauthenticated-each": int64(c.MaxUnauthenticatedEach),
		"max-failed-hellos": int64(c.MaxFailedHellos), "max-failed-handshakes": int64(c.MaxFailedHandshakes), "max-failed-tokens": int64(c.MaxFailedTokens),
	} {
		if n < 0 {
			return fmt.Errorf("%s: %d is below 0", key, n)
		}
	}
	return nil
}
