package rpc

import "time"

// SandboxParams are those of sandbox_info, sandbox_create, sandbox_pause and
// sandbox_resume.
type SandboxParams struct {
	// Sandbox is a name; that of hello where empty.
	Sandbox string
}

var sandboxFields = []string{"sandbox"}

func (p *SandboxParams) decode(d *decoder) {
	o := object{fields: sandboxFields, strict: true}
	for {
		if _, ok := d.next(&o); !ok {
			return
		}
		p.Sandbox = d.sandboxName()
	}
}

func (p *SandboxParams) encode(e encoder) {
	e.raw("{")
	e.strField("sandbox", p.Sandbox)
	e.raw("}")
}

// SandboxRemoveParams are those of sandbox_remove.
type SandboxRemoveParams struct {
	// Sandbox is a name; that of hello where empty.
	Sandbox string
	// Files has its directory removed as well.
	Files bool
}

var sandboxRemoveFields = []string{"sandbox", "files"}

func (p *SandboxRemoveParams) decode(d *decoder) {
	o := object{fields: sandboxRemoveFields, strict: true}
	for {
		field, ok := d.next(&o)
		switch {
		case !ok:
			return
		case field == "sandbox":
			p.Sandbox = d.sandboxName()
		default:
			p.Files = d.boolean()
		}
	}
}

func (p *SandboxRemoveParams) encode(e encoder) {
	e.raw("{")
	e.strField("sandbox", p.Sandbox)
	e.trueField("files", p.Files)
	e.raw("}")
}

// SandboxExtendParams are those of sandbox_extend.
type SandboxExtendParams struct {
	// Sandbox is a name; that of hello where empty.
	Sandbox string
	// For is how long it is to live from now on.
	For time.Duration
}

var sandboxExtendFields = []string{"sandbox", "seconds"}

func (p *SandboxExtendParams) decode(d *decoder) {
	o := object{fields: sandboxExtendFields, strict: true}
	for {
		field, ok := d.next(&o)
		switch {
		case !ok:
			d.require(&o, "seconds")
			return
		case field == "sandbox":
			p.Sandbox = d.sandboxName()
		default:
			if p.For = d.seconds(MaxSandboxExtend); p.For == 0 {
				d.mismatch("must be more than zero")
			}
		}
	}
}

func (p *SandboxExtendParams) encode(e encoder) {
	e.raw("{")
	e.strField("sandbox", p.Sandbox)
	e.field("seconds")
	e.seconds(p.For)
	e.raw("}")
}
