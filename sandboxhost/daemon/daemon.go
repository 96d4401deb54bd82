package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	sdaemon "github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/fair"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/host"
	"github.com/controld/controld/transfer"
	"github.com/controld/controld/work"
)

// Options are what a daemon is given beside its configuration.
type Options struct {
	// Version is told to clients.
	Version string
	// Log takes the log; os.Stderr where nil.
	Log io.Writer
	// Ready, where not nil, is called once when every listener accepts.
	Ready func(Ready)
	// Drain, when it is closed, ends the daemon in good order.
	Drain <-chan struct{}
	// Reload has the daemon read certificates, tokens, limits and log level
	// anew, with what Load returns.
	Reload <-chan struct{}
	Load   func() (Config, error)
	// Keeper is a program's path and its arguments, its name among them, with
	// which it does nothing but call [local.Keep]. That process ends all
	// commands when this one is killed; without one the next start does.
	Keeper []string
	// Agent is a program's path and the arguments with which it is the agent
	// of a sandbox, but for what an instance gives it.
	Agent []string
}

// Ready is what the ready file says.
type Ready struct {
	PID     int      `json:"pid"`
	Control []string `json:"control"`
	Data    []string `json:"data"`
	Admin   string   `json:"admin,omitempty"`
	Epoch   string   `json:"epoch"`
}

// ErrNotDrained is what Run returns when the drain ran into its timeout or
// the daemon was stopped before it had drained.
var ErrNotDrained = errors.New("stopped before everything had ended")

// Daemon is one controld. Make it with [New], run it once.
type Daemon struct {
	cfg  Config
	opts Options
	log  zerolog.Logger

	lock      *os.File
	keeper    *local.Keeper // nil where there is none
	host      *sandboxhost.Host
	shared    shared
	ends      []func() error // what drivers hold
	transfers *transfer.Table
	keys      *work.Keys
	server    *server.Server
	dataURLs  []string
	draining  atomic.Bool
	identity  identity
	audit     *auditLog // nil where none is kept
	gate      *gate.Gate
	refused   atomic.Uint64 // peers that a listener does not accept
	serving   sync.WaitGroup
}

// New checks a configuration. Nothing is opened before [Daemon.Run].
func New(cfg Config, opts Options) (*Daemon, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if err := cfg.checkCertificate(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = os.Stderr
	}
	if opts.Version == "" {
		opts.Version = "dev"
	}
	return &Daemon{cfg: cfg, opts: opts, log: newLogger(opts.Log, cfg.LogFormat, cfg.LogLevel)}, nil
}

// Run serves until ctx ends, which stops at once, or Options.Drain is closed,
// which drains first. It returns nil after a whole drain, [ErrNotDrained]
// after any other stop and anything else when it could not start.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.open(); err != nil {
		return err
	}
	defer d.close()
	listeners, err := d.listen()
	if err != nil {
		return err
	}
	// Connections end with the server, not with ctx: a drain outlives it.
	for _, l := range listeners.planes {
		d.serving.Go(func() { d.server.Serve(context.Background(), l.Listener, l.planes) })
	}
	stopAdmin := d.serveAdmin(listeners.admin)
	defer stopAdmin()
	if err := d.ready(listeners.ready); err != nil {
		return err
	}
	defer os.Remove(d.cfg.ReadyFile)
	return d.wait(ctx)
}

// open takes the state directory, sweeps what a dead daemon left there and
// makes the rooms below.
func (d *Daemon) open() error {
	tokens, err := sandboxhost.LoadTokens(d.cfg.Tokens)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	if err := d.identity.load(d.cfg); err != nil {
		return err
	}
	if d.cfg.ReadyFile != "" {
		os.Remove(d.cfg.ReadyFile)
	}
	if err := os.MkdirAll(d.cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("state-dir: %w", err)
	}
	if d.lock, err = lockFile(filepath.Join(d.cfg.StateDir, "lock")); err != nil {
		return err
	}
	if err := local.Sweep(filepath.Join(d.cfg.StateDir, "journal")); err != nil {
		d.log.Warn().Err(err).Msg("sweeping what an earlier daemon left")
	}
	d.keeper = newKeeper(d.opts.Keeper)
	if err := d.openHost(tokens); err != nil {
		d.lock.Close()
		return err
	}
	if d.audit, err = openAudit(d.cfg.AuditLog, auditFails(d.log)); err != nil {
		d.host.Close()
		d.lock.Close()
		return err
	}
	d.keys, err = work.NewKeys(work.KeysConfig{Dir: filepath.Join(d.cfg.StateDir, "keys"), MaxRemembered: d.cfg.MaxRequestKeys})
	if err != nil {
		if d.audit != nil {
			d.audit.close()
		}
		d.host.Close()
		d.lock.Close()
		return fmt.Errorf("state-dir: %w", err)
	}
	if d.cfg.Driver == host.Name {
		d.log.Warn().Str("driver", d.cfg.Driver).Msg("this driver is no isolation: commands run as this user on this machine")
	}
	if err := d.host.Adopt(context.Background()); err != nil {
		d.log.Error().Err(err).Msg("sandboxes of an earlier daemon")
	}
	d.host.FillPools()
	d.serveBy()
	return nil
}

// openHost makes the host of the sandboxes, with tiers that are known to run.
func (d *Daemon) openHost(tokens *sandboxhost.Tokens) error {
	driver, others, err := d.drivers(d.cfg)
	if err != nil {
		return err
	}
	tiers, err := d.hostTiers()
	if err != nil {
		return err
	}
	of, err := d.cfg.tenantTiers()
	if err != nil {
		return err
	}
	d.host, err = sandboxhost.New(sandboxhost.Config{
		StateDir: d.cfg.StateDir, Driver: driver, Others: others, Tokens: tokens,
		Box: d.cfg.box(), IdleStop: d.cfg.IdleStop, MaxLife: d.cfg.MaxLife, Pool: d.cfg.Pool, Tiers: tiers, TenantTiers: of,
		Ended: d.sandboxEnded, PoolFailed: d.poolFailed,
		Health:           sandboxhost.Health{Interval: d.cfg.HealthInterval, Misses: d.cfg.HealthMisses},
		CertificateLogin: d.cfg.TLSClientLogin,
		Limits:           d.cfg.Limits(), Quotas: d.cfg.quotas(), Epoch: uuid.NewString(),
	})
	if err != nil {
		return fmt.Errorf("state-dir: %w", err)
	}
	if err := d.host.TryTiers(context.Background()); err != nil {
		d.host.Close()
		return err
	}
	return nil
}

// openTimeout is how long a hello may wait for its sandbox to start.
const openTimeout = 2 * time.Minute

// serveBy makes the server and what it needs.
func (d *Daemon) serveBy() {
	transfers := transfer.Config{TokenTTL: d.cfg.TokenTTL, Kept: d.cfg.KeptOutcomes, MaxLive: d.cfg.MaxTransfers, MaxTokens: d.cfg.MaxTokens}
	var tell func(server.Deed)
	if d.audit != nil {
		tell, transfers.Ended = d.audit.tell, d.audit.tellTransfer
	}
	d.transfers = transfer.NewTable(transfers)
	d.gate = gate.New(d.cfg.gateLimits())
	d.server = server.New(server.Config{
		Host: d.host, OpenTimeout: openTimeout, Transfers: d.transfers, Keys: d.keys, Limits: d.cfg.Limits(), ServerName: "controld/" + d.opts.Version,
		DataURLs: func(net.Addr) []string { return d.dataURLs },
		Gate:     d.gate, Capabilities: d.capabilities(),
		CertificateLogin: d.cfg.TLSClientLogin, CertificateTenant: sandboxhost.CertificateTenant,
		Pump:  d.newPump(),
		Log:   events(d.log),
		Audit: tell,
	})
}

// auditFails tells of an audit log that lacks lines; the metrics count them.
func auditFails(log zerolog.Logger) func(error) {
	return func(err error) { log.Warn().Err(err).Msg("the audit log is not whole") }
}

// capabilities are those of the daemon itself.
func (d *Daemon) capabilities() []string {
	if len(d.cfg.InsecureDataFrom) == 0 {
		return nil
	}
	return []string{sandbox.CapPlainData}
}

// newKeeper returns the keeper of a command line, nil where there is none.
func newKeeper(line []string) *local.Keeper {
	if len(line) == 0 {
		return nil
	}
	return local.NewKeeper(line[0], line[1:]...)
}

// newPump returns the pump of all transfers, which tenants share.
func (d *Daemon) newPump() *dataport.Pump {
	return dataport.NewPump(dataport.PumpOptions{
		Stall: d.cfg.StallTimeout, Splices: d.splices(), Quota: d.host.BytesPerSecond,
		Turns: fair.New(fair.Options{Shared: max(runtime.NumCPU()/2, 1), Linger: 500 * time.Millisecond}),
	})
}

func (d *Daemon) splices() int {
	if d.cfg.MaxSplices == 0 && os.Geteuid() != 0 {
		return 48
	}
	return d.cfg.MaxSplices
}

// ready tells everybody who waits for it that every listener accepts.
func (d *Daemon) ready(r Ready) error {
	r.PID, r.Epoch = os.Getpid(), d.host.Epoch()
	if d.cfg.ReadyFile != "" {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := WriteWhole(d.cfg.ReadyFile, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("ready-file: %w", err)
		}
	}
	sdaemon.SdNotify(false, sdaemon.SdNotifyReady)
	d.log.Info().Strs("control", r.Control).Strs("data", r.Data).Str("admin", r.Admin).Str("epoch", r.Epoch).Msg("ready")
	if d.opts.Ready != nil {
		d.opts.Ready(r)
	}
	return nil
}

// wait serves until it is told to end.
func (d *Daemon) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ErrNotDrained
		case <-d.opts.Drain:
			return d.drain(ctx)
		case <-d.opts.Reload:
			d.reload()
		}
	}
}

func (d *Daemon) drain(ctx context.Context) error {
	d.draining.Store(true)
	sdaemon.SdNotify(false, sdaemon.SdNotifyStopping)
	d.log.Info().Dur("timeout", d.cfg.DrainTimeout).Msg("draining")
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DrainTimeout)
	defer cancel()
	if err := d.server.Drain(ctx); err != nil {
		d.log.Warn().Int("transfers", d.transfers.Live()).Msg("drain timed out")
		return ErrNotDrained
	}
	d.log.Info().Msg("drained")
	return nil
}

// WriteWhole writes a file so that a reader sees it whole or not at all.
func WriteWhole(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
