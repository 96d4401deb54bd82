package rpc

import "github.com/controld/controld/sandbox"

// StatParams are those of stat.
type StatParams struct {
	Path    string
	Options sandbox.StatOptions
}

var statFields = []string{"path", "scope", "follow"}

func (p *StatParams) decode(d *decoder) {
	o := object{fields: statFields, strict: true}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "path":
			p.Path = d.name()
		case "scope":
			p.Options.Scope = d.scope()
		case "follow":
			p.Options.NoFollow = !d.boolean()
		}
	}
	d.require(&o, "path")
}

func (p *StatParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	if p.Options.NoFollow {
		e.raw(`,"follow":false`)
	}
	e.raw("}")
}

// ReadDirParams are those of readdir.
type ReadDirParams struct {
	Path    string
	Options sandbox.ReadDirOptions
}

var readDirFields = []string{"path", "scope", "after", "limit"}

func (p *ReadDirParams) decode(d *decoder) {
	o := object{fields: readDirFields, strict: true}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "path":
			p.Path = d.name()
		case "scope":
			p.Options.Scope = d.scope()
		case "after":
			p.Options.After = d.name()
		case "limit":
			p.Options.Limit = int(d.integer(1, 1<<31-1))
		}
	}
	d.require(&o, "path")
}

func (p *ReadDirParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.nameField("after", p.Options.After)
	e.countField("limit", int64(p.Options.Limit))
	e.raw("}")
}

// ExistsParams are those of exists.
type ExistsParams struct {
	Path    string
	Options sandbox.ExistsOptions
}

func (p *ExistsParams) decode(d *decoder) {
	d.pathCall(&p.Path, &p.Options.Scope, nil, nil)
}

func (p *ExistsParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.raw("}")
}

// MkdirParams are those of mkdir.
type MkdirParams struct {
	Path    string
	Options sandbox.MkdirOptions
}

func (p *MkdirParams) decode(d *decoder) {
	d.pathCall(&p.Path, &p.Options.Scope, &p.Options.Recursive, nil)
}

func (p *MkdirParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.trueField("recursive", p.Options.Recursive)
	e.raw("}")
}

// RmParams are those of rm.
type RmParams struct {
	Path    string
	Options sandbox.RmOptions
}

func (p *RmParams) decode(d *decoder) {
	d.pathCall(&p.Path, &p.Options.Scope, &p.Options.Recursive, &p.Options.Force)
}

func (p *RmParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.trueField("recursive", p.Options.Recursive)
	e.trueField("force", p.Options.Force)
	e.raw("}")
}

var pathFields = []string{"path", "scope", "recursive", "force"}

// pathCall reads a path, a scope and as many of two switches as are given.
func (d *decoder) pathCall(path, scope *string, recursive, force *bool) {
	o := object{fields: pathFields, strict: true}
	switch {
	case recursive == nil:
		o.fields = pathFields[:2]
	case force == nil:
		o.fields = pathFields[:3]
	}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "path":
			*path = d.name()
		case "scope":
			*scope = d.scope()
		case "recursive":
			*recursive = d.boolean()
		case "force":
			*force = d.boolean()
		}
	}
	d.require(&o, "path")
}
