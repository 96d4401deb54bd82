package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	yamlv3 "gopkg.in/yaml.v3"

	"github.com/controld/controld/sandboxhost/daemon"
)

// envPrefix begins the names of environment variables: CONTROLD_STATE_DIR is
// state-dir.
const envPrefix = "CONTROLD_"

// settings is a configuration with where each value came from.
type settings struct {
	daemon.Config
	origin map[string]string
}

// keys lists the keys of the configuration in the order of its fields.
func keys() []string {
	t := reflect.TypeFor[daemon.Config]()
	out := make([]string, t.NumField())
	for i := range out {
		out[i] = t.Field(i).Tag.Get("koanf")
	}
	return out
}

// loadSettings layers defaults, file, environment and flags; a later one wins.
func loadSettings(defaults daemon.Config, path string, flags *pflag.FlagSet) (settings, error) {
	s := settings{origin: make(map[string]string)}
	all := koanf.New(".")
	layer := func(name string, load func(k *koanf.Koanf) error) error {
		k := koanf.New(".")
		if err := load(k); err != nil {
			return err
		}
		for _, key := range k.Keys() {
			s.origin[key] = name
		}
		return all.Merge(k)
	}
	err := errors.Join(
		layer("default", func(k *koanf.Koanf) error { return k.Load(structs.Provider(defaults, "koanf"), nil) }),
		layer("file "+path, func(k *koanf.Koanf) error { return loadFile(k, path) }),
		layer("environment", func(k *koanf.Koanf) error { return k.Load(environment(), nil) }),
		layer("flag", func(k *koanf.Koanf) error { return loadFlags(k, flags) }),
	)
	if err != nil {
		return s, err
	}
	if err := all.Unmarshal("", &s.Config); err != nil {
		return s, usagef("configuration: %v", err)
	}
	return s, nil
}

func loadFile(k *koanf.Koanf, path string) error {
	if path == "" {
		return nil
	}
	if err := checkKeys(path); err != nil {
		return err
	}
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return usagef("%s: %v", path, err)
	}
	return nil
}

// checkKeys finds unknown and doubled keys, with their lines.
func checkKeys(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(text, &doc); err != nil {
		return usagef("%s: %v", path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	top := doc.Content[0]
	if top.Kind != yamlv3.MappingNode {
		return usagef("%s:%d: want key: value lines", path, top.Line)
	}
	known, seen := keys(), map[string]bool{}
	for i := 0; i < len(top.Content); i += 2 {
		key := top.Content[i]
		if !slices.Contains(known, key.Value) {
			return usagef("%s:%d: unknown key %q%s", path, key.Line, key.Value, suggest(key.Value, known))
		}
		if seen[key.Value] {
			return usagef("%s:%d: key %q stands twice", path, key.Line, key.Value)
		}
		seen[key.Value] = true
	}
	return nil
}

// suggest finds the key that was meant when only dashes differ.
func suggest(key string, known []string) string {
	plain := strings.NewReplacer("_", "", "-", "")
	for _, k := range known {
		if strings.EqualFold(plain.Replace(k), plain.Replace(key)) {
			return fmt.Sprintf(" (%q is meant?)", k)
		}
	}
	return ""
}

// environment takes the variables that name a key; others, such as those of
// the client, are not the daemon's.
func environment() koanf.Provider {
	known := keys()
	return env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: func(name, value string) (string, any) {
		key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
		switch {
		case !slices.Contains(known, key):
			return "", nil
		case isList(key) && value == "":
			return key, []string{}
		case key == "tier": // its pairs have the comma
			return key, strings.Split(value, ";")
		case isList(key):
			return key, strings.Split(value, ",")
		}
		return key, value
	}})
}

func isList(key string) bool {
	switch key {
	case "control", "data", "advertise-data", "insecure-data-from", "unix-allow-uid", "tier", "tenant-tier":
		return true
	}
	return false
}

// loadFlags takes the flags that were given on the command line.
func loadFlags(k *koanf.Koanf, flags *pflag.FlagSet) error {
	known := keys()
	provider := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		if !f.Changed || !slices.Contains(known, f.Name) {
			return "", nil
		}
		return f.Name, posflag.FlagVal(flags, f)
	})
	return k.Load(provider, nil)
}

// settingFlags declares one flag a key.
func settingFlags(f *pflag.FlagSet) {
	d := daemon.Default()
	f.StringArray("control", d.Control, "control URL to listen on, repeatable")
	f.StringArray("data", d.Data, "data URL to listen on, repeatable")
	f.StringArray("advertise-data", nil, "data URL told to clients instead, repeatable")
	f.String("admin", d.Admin, "URL of health and metrics; none by default")
	f.String("state-dir", d.StateDir, "directory of sandboxes and of what must survive")
	f.String("tokens", "", "file of tokens, see controld token new")
	f.String("driver", d.Driver, "kind of isolation: "+strings.Join(daemon.DriverNames(), ", ")+" (host is none)")
	f.String("network", d.Network, "what sandboxes reach: none or host (the driver's own choice where empty)")
	f.String("image", d.Image, "image of a sandbox's root, as the driver names it (the host's programs where empty)")
	f.Int64("sandbox-memory", d.SandboxMemory, "bytes of memory of a sandbox, swap included (0: no bound)")
	f.Int64("sandbox-processes", d.SandboxProcesses, "processes and threads of a sandbox at once (0: no bound)")
	f.Float64("sandbox-cpus", d.SandboxCPUs, "processors of a sandbox, 1.5 is one and a half (0: no bound)")
	f.Duration("idle-stop", d.IdleStop, "stop a sandbox that has no session, call or transfer for so long; the next hello starts it again (0: never)")
	f.Duration("max-life", d.MaxLife, "stop a sandbox that has lived for so long, used or not, unless it is extended (0: never)")
	f.Duration("health-interval", d.HealthInterval, "ask an agent that was silent for so long for a sign of life (0: never)")
	f.Int("health-misses", d.HealthMisses, "end a sandbox whose agent gave none for so many of these intervals in a row")
	f.Int("pool", d.Pool, "sandboxes that are kept ready for the first hello of one without files (0: none)")
	f.StringArray("tier", nil, "another way of making sandboxes, NAME=KEY:VALUE,... with the keys driver, runtime, engine, image, network, memory, processes, cpus, idle-stop, max-life, pool; what is left out is as the flags say; repeatable")
	f.StringArray("tenant-tier", nil, "the tier of a tenant's sandboxes, TENANT=NAME, repeatable")
	f.String("runtime", d.Runtime, "program of the oci driver (runc where empty)")
	f.String("engine", d.Engine, "URL of the docker driver's engine (DOCKER_HOST or the usual socket where empty)")
	f.String("cgroup-parent", d.CgroupParent, "cgroup below which sandboxes have theirs (the driver's choice where empty)")
	f.String("agent", d.Agent, "program that runs inside sandboxes (this one where empty)")
	f.String("cgroups", d.Cgroups, "hold process trees by cgroups: auto or off")
	f.Int64("exec-memory", 0, "bytes of memory that a command and its processes may use (0: no bound; needs cgroup v2)")
	f.Int64("exec-processes", 0, "processes and threads that a command may have at once (0: no bound; needs cgroup v2)")
	f.String("tls-cert", "", "PEM file of the certificate that tls URLs show, with what leads to its root")
	f.String("tls-key", "", "PEM file of the certificate's key")
	f.String("tls-client-ca", "", "PEM file of who signs client certificates: tls URLs then ask for one")
	f.String("tls-client-deny", "", "file of SHA-256 sums of client certificates that are refused")
	f.Bool("tls-client-login", false, "let a client certificate stand for a token")
	f.Bool("insecure", false, "allow to listen in the clear beyond this machine")
	f.StringArray("insecure-data-from", nil, "network whose peers may use plain data URLs, which may then listen beyond this machine; repeatable")
	f.IntSlice("unix-allow-uid", nil, "user whose processes Unix sockets accept beside the daemon's own and root's; repeatable")
	f.String("audit-log", "", "file of JSON lines that takes who did what")
	f.String("ready-file", "", "JSON file written when every listener accepts")
	f.Duration("drain-timeout", d.DrainTimeout, "how long SIGTERM waits for what runs")
	f.Duration("stall-timeout", d.StallTimeout, "end a transfer that does not move for so long")
	f.Duration("write-timeout", d.WriteTimeout, "cut off a peer that takes no reply for so long")
	f.Duration("token-ttl", d.TokenTTL, "how long a transfer's token waits for its connection")
	f.Duration("kept-outcomes", d.KeptOutcomes, "how long a transfer's outcome can be asked for")
	f.Int("max-unauthenticated", d.MaxUnauthenticated, "connections at once that have not authenticated (0: no bound but a quarter of the descriptors)")
	f.Int("max-unauthenticated-each", d.MaxUnauthenticatedEach, "those of one source: address, /64 of IPv6, user (0: no bound)")
	f.Int("max-failed-hellos", d.MaxFailedHellos, "failed hellos of a source in a failure window, behind which it is kept out (0: never)")
	f.Int("max-failed-handshakes", d.MaxFailedHandshakes, "failed TLS handshakes, likewise")
	f.Int("max-failed-tokens", d.MaxFailedTokens, "data tokens that never were, likewise")
	f.Duration("failure-window", d.FailureWindow, "time in which failures count")
	f.Duration("failure-wait", d.FailureWait, "how long a source is kept out at most")
	f.Duration("reconnect-grace", d.ReconnectGrace, "how long a call with a key goes on when its connection is lost")
	f.Int("max-connections", d.MaxConnections, "control connections a tenant")
	f.Int("max-calls", d.MaxCalls, "calls a tenant that run at once")
	f.Int("max-execs", d.MaxExecs, "commands a tenant that run at once")
	f.Int64("max-bytes-per-second", d.MaxBytesPerSecond, "bytes a second of all transfers of a tenant (0: no bound)")
	f.Int("max-tokens", d.MaxTokens, "transfers a tenant that wait for their connections")
	f.Int("max-transfers", d.MaxTransfers, "transfers a tenant at once")
	f.Int("max-request-keys", d.MaxRequestKeys, "request keys a tenant that are remembered for a day")
	f.Int64("max-message-bytes", d.MaxMessageBytes, "longest message")
	f.Int("max-inflight", d.MaxInflight, "calls a connection that run at once")
	f.Int("max-queued", d.MaxQueued, "calls a connection that wait")
	f.Int("max-waiting-transfers", d.MaxWaitingTransfers, "transfer results and commits a connection that wait")
	f.Int("max-batch", d.MaxBatch, "calls in a batch")
	f.Int64("max-buffered-bytes", d.MaxBufferedBytes, "largest buffered read")
	f.Int64("max-output-bytes", d.MaxOutputBytes, "most output of a command, a stream")
	f.Int64("max-buffered-inflight-bytes", d.MaxBufferedInflightBytes, "bytes a tenant's buffered calls may hold")
	f.Int("max-splices", d.MaxSplices, "pipes that uploads hold at once (0: 48 for an ordinary user, else no bound)")
	f.String("log-level", d.LogLevel, "debug, info, warn or error")
	f.String("log-format", d.LogFormat, "auto, console or json")
	f.Bool("traceable", false, "let processes of the same user, commands among them, trace and read the daemon")
	f.Bool("pprof", false, "serve profiles on the admin port")
}

// show returns a value as it would stand in a file.
func show(v any) string {
	switch v := v.(type) {
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case []int:
		return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]") + "]"
	case time.Duration:
		return v.String()
	case string:
		if v == "" {
			return `""`
		}
	}
	return fmt.Sprint(v)
}

// value returns the effective value of a key.
func (s settings) value(key string) any {
	v := reflect.ValueOf(s.Config)
	for i, k := range keys() {
		if k == key {
			return v.Field(i).Interface()
		}
	}
	return nil
}
