package rpc

import "github.com/controld/controld/sandbox"

// StatParams are those of stat.
type StatParams struct {
	Path    string
	Options sandbox.StatOptions
}

var statFields = []string{"path", "scope", "follow"}

func (p *StatParams) decode(d *decoder) {
	d.pathParams(statFields, 0, &p.Path, &p.Options.Scope, func(string) { p.Options.NoFollow = !d.boolean() })
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
	d.pathParams(readDirFields, 0, &p.Path, &p.Options.Scope, func(field string) {
		switch field {
		case "after":
			p.Options.After = d.name()
		case "limit":
			p.Options.Limit = int(d.integer(1, 1<<31-1))
		}
	})
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

var existsFields = []string{"path", "scope"}

func (p *ExistsParams) decode(d *decoder) {
	d.pathParams(existsFields, 0, &p.Path, &p.Options.Scope, nil)
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

var mkdirFields = []string{"path", "scope", "recursive", keyField}

func (p *MkdirParams) decode(d *decoder) {
	d.pathParams(mkdirFields, 1, &p.Path, &p.Options.Scope, func(field string) {
		switch field {
		case "recursive":
			p.Options.Recursive = d.boolean()
		case keyField:
			p.Options.RequestKey = d.uuid()
		}
	})
}

func (p *MkdirParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.trueField("recursive", p.Options.Recursive)
	e.strField(keyField, p.Options.RequestKey)
	e.raw("}")
}

// RmParams are those of rm.
type RmParams struct {
	Path    string
	Options sandbox.RmOptions
}

var rmFields = []string{"path", "scope", "recursive", "force", keyField}

func (p *RmParams) decode(d *decoder) {
	d.pathParams(rmFields, 1, &p.Path, &p.Options.Scope, func(field string) {
		switch field {
		case "recursive":
			p.Options.Recursive = d.boolean()
		case "force":
			p.Options.Force = d.boolean()
		case keyField:
			p.Options.RequestKey = d.uuid()
		}
	})
}

func (p *RmParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.trueField("recursive", p.Options.Recursive)
	e.trueField("force", p.Options.Force)
	e.strField(keyField, p.Options.RequestKey)
	e.raw("}")
}
