package rpc

import (
	"strconv"
	"time"

	"github.com/controld/controld/sandbox"
)

// HelloParams are those of hello.
type HelloParams struct {
	// Protocol is the version the client wants to speak; a version that does
	// not fit is -1. It is set even when the rest is faulty.
	Protocol int64
	Token    string
	// NoToken is set in a decoded hello that has none: who shows a
	// certificate may do without.
	NoToken bool
	Client  string
	// Sandbox names the sandbox; DefaultSandbox where absent.
	Sandbox string
	// Tenant must match the token where given.
	Tenant string
	// Mux asks to go on with a multiplexer, see MuxYamux.
	Mux string
}

// DefaultSandbox is the sandbox of a hello that names none.
const DefaultSandbox = "default"

var helloFields = []string{"protocol", "token", "client", "sandbox", "tenant", "mux"}

func (p *HelloParams) decode(d *decoder) {
	o := object{fields: helloFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "protocol":
			p.Protocol = d.protocol()
		case "token":
			p.Token = d.str()
		case "client":
			p.Client = d.str()
		case "sandbox":
			p.Sandbox = d.sandboxName()
		case "tenant":
			p.Tenant = d.str()
		case "mux":
			p.Mux = d.str()
			if p.Mux == "" {
				d.mismatch("must not be empty")
			}
		}
	}
	if p.Sandbox == "" {
		p.Sandbox = DefaultSandbox
	}
	d.require(&o, "protocol")
	p.NoToken = !o.has("token")
}

func (d *decoder) protocol() int64 {
	raw, ok := d.number()
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != ProtocolVersion {
		return -1
	}
	return ProtocolVersion
}

// sandboxName reads the name of a sandbox.
func (d *decoder) sandboxName() string {
	s := d.str()
	if !sandboxName(s) {
		d.mismatch("must match [a-z0-9][a-z0-9-]{0,62}")
	}
	return s
}

func sandboxName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 63
}

func (p *HelloParams) encode(e encoder) {
	e.raw(`{"protocol":`)
	e.integer(p.Protocol)
	e.raw(`,"token":`)
	e.str(p.Token)
	e.strField("client", p.Client)
	e.strField("sandbox", p.Sandbox)
	e.strField("tenant", p.Tenant)
	e.strField("mux", p.Mux)
	e.raw("}")
}

// HelloResult is what a server says of itself and the sandbox.
type HelloResult struct {
	Protocol int64
	// Server is name/version.
	Server string
	// Data lists the data endpoints in the order to try.
	Data []string
	Info sandbox.Info
}

var helloResultFields = []string{"protocol", "server", "epoch", "tenant", "sandbox", "cwd", "data", "capabilities", "limits", "tree"}

func (r *HelloResult) decode(d *decoder) {
	o := object{fields: helloResultFields}
	if len(d.data) > maxHelloAnswer {
		d.mismatch("is too long") // it is kept for as long as the connection
		d.skip()
		return
	}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "protocol":
			if r.Protocol = d.protocol(); r.Protocol < 0 {
				d.mismatch("is none that was asked for")
			}
		case "server":
			r.Server = d.str()
		case "epoch":
			r.Info.Epoch = d.str()
		case "tenant":
			r.Info.Tenant = d.str()
		case "sandbox":
			r.Info.Sandbox = d.str()
		case "cwd":
			r.Info.Cwd = d.name()
		case "data":
			r.Data = d.strings()
		case "capabilities":
			r.Info.Capabilities = d.strings()
		case "limits":
			d.limits(&r.Info.Limits)
		case "tree":
			r.Info.Tree = d.str()
		}
	}
	for _, field := range []string{"protocol", "epoch", "cwd", "capabilities"} {
		d.require(&o, field)
	}
}

func (d *decoder) strings() []string {
	out := []string{}
	d.array(func() { out = append(out, d.str()) })
	return out
}

func (r *HelloResult) encode(e encoder) {
	e.raw(`{"protocol":`)
	e.integer(r.Protocol)
	e.raw(`,"server":`)
	e.str(r.Server)
	e.raw(`,"epoch":`)
	e.str(r.Info.Epoch)
	e.raw(`,"tenant":`)
	e.str(r.Info.Tenant)
	e.raw(`,"sandbox":`)
	e.str(r.Info.Sandbox)
	e.raw(`,"cwd":`)
	e.name(r.Info.Cwd)
	e.raw(`,"data":`)
	e.strings(r.Data)
	e.raw(`,"capabilities":`)
	e.strings(r.Info.Capabilities)
	e.raw(`,"limits":{`)
	e.limits(&r.Info.Limits)
	e.raw("}")
	e.strField("tree", r.Info.Tree)
	e.raw("}")
}

func (e encoder) strings(list []string) {
	e.raw("[")
	for i, s := range list {
		if i > 0 {
			e.raw(",")
		}
		e.str(s)
	}
	e.raw("]")
}

// limitFields pairs the names of the wire with the fields of a Limits.
func limitFields(l *sandbox.Limits) (sizes []limit[int64], counts []limit[int], times []limit[time.Duration]) {
	sizes = []limit[int64]{
		{"max_message_bytes", &l.MaxMessageBytes},
		{"max_buffered_bytes", &l.MaxBufferedBytes},
		{"max_output_bytes", &l.MaxOutputBytes},
		{"max_buffered_inflight_bytes", &l.MaxBufferedInflightBytes},
	}
	counts = []limit[int]{
		{"max_inflight", &l.MaxInflight},
		{"max_queued", &l.MaxQueued},
		{"max_waiting_transfers", &l.MaxWaitingTransfers},
		{"max_batch", &l.MaxBatch},
		{"max_depth", &l.MaxDepth},
	}
	times = []limit[time.Duration]{
		{"write_timeout_s", &l.WriteTimeout},
		{"token_ttl_s", &l.TokenTTL},
		{"stall_timeout_s", &l.StallTimeout},
		{"kept_outcomes_s", &l.KeptOutcomes},
		{"reconnect_grace_s", &l.ReconnectGrace},
		{"kept_keys_s", &l.KeptKeys},
	}
	return sizes, counts, times
}

type limit[T any] struct {
	name  string
	value *T
}

func (e encoder) limits(l *sandbox.Limits) {
	sizes, counts, times := limitFields(l)
	for _, f := range sizes {
		e.countField(f.name, *f.value)
	}
	for _, f := range counts {
		e.countField(f.name, int64(*f.value))
	}
	for _, f := range times {
		if *f.value > 0 {
			e.field(f.name)
			e.seconds(*f.value)
		}
	}
}

func (d *decoder) limits(l *sandbox.Limits) {
	sizes, counts, times := limitFields(l)
	o := object{}
	for _, f := range sizes {
		o.fields = append(o.fields, f.name)
	}
	for _, f := range counts {
		o.fields = append(o.fields, f.name)
	}
	for _, f := range times {
		o.fields = append(o.fields, f.name)
	}
	for {
		field, ok := d.next(&o)
		if !ok {
			return
		}
		for _, f := range sizes {
			if f.name == field {
				*f.value = d.size()
			}
		}
		for _, f := range counts {
			if f.name == field {
				*f.value = int(d.integer(0, 1<<31-1))
			}
		}
		for _, f := range times {
			if f.name == field {
				*f.value = d.seconds(maxDuration)
			}
		}
	}
}
