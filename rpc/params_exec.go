package rpc

import (
	"slices"

	"maps"

	"github.com/controld/controld/sandbox"
)

// ExecParams are those of exec.
type ExecParams struct {
	Command string
	Options sandbox.ExecOptions
}

var execFields = []string{"command", "cwd", "env", "timeout_s", "stdin", "max_output_bytes", "kill_grace_s", keyField, "detach"}

func (p *ExecParams) decode(d *decoder) {
	o := object{fields: execFields, keyed: 2, strict: true}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		p.decodeField(d, field)
	}
	d.require(&o, "command")
	if p.Options.Detach {
		d.require(&o, keyField) // or nobody could find it again
	}
}

func (p *ExecParams) decodeField(d *decoder, field string) {
	switch field {
	case "command":
		p.Command = d.noNUL(d.str())
	case "cwd":
		if p.Options.Cwd = d.noNUL(d.name()); p.Options.Cwd == "" {
			d.mismatch("must not be empty")
		}
	case "env":
		p.Options.Env = d.environment()
	case "timeout_s":
		if p.Options.Timeout = d.seconds(MaxExecTimeout); p.Options.Timeout == 0 {
			d.mismatch("must be more than zero")
		}
	case "stdin":
		p.Options.Stdin = d.content()
	case "max_output_bytes":
		p.Options.MaxOutputBytes = sandbox.Some(d.size())
	case "kill_grace_s":
		p.Options.KillGrace = sandbox.Some(d.seconds(MaxExecTimeout))
	case keyField:
		p.Options.RequestKey = d.uuid()
	case "detach":
		p.Options.Detach = d.boolean()
	}
}

// noNUL refuses what no argument of a process can hold.
func (d *decoder) noNUL(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			d.mismatch("must not hold NUL")
			break
		}
	}
	return s
}

// environment reads an object of strings.
func (d *decoder) environment() map[string]string {
	field := d.field
	env := map[string]string{}
	o := object{}
	for d.broken == "" && d.nextName(&o) {
		t := d.scanString()
		if !d.expect(':') {
			break
		}
		name := t.text()
		d.field = field + "." + shorten(name)
		if _, twice := env[name]; twice {
			d.mismatch("comes twice")
		}
		if !environmentName(name) {
			d.mismatch("is no name of a variable")
		}
		env[name] = d.noNUL(d.str())
	}
	d.field = field
	return env
}

func environmentName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		letter := 'a' <= c && c <= 'z' || s[i] == '_'
		if !letter && (i == 0 || s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return s != ""
}

func (p *ExecParams) encode(e encoder) {
	e.raw(`{"command":`)
	e.str(p.Command)
	e.nameField("cwd", p.Options.Cwd)
	if len(p.Options.Env) > 0 {
		e.raw(`,"env":{`)
		for _, name := range slices.Sorted(maps.Keys(p.Options.Env)) {
			if b := e.m.buf; b[len(b)-1] != '{' {
				e.raw(",")
			}
			e.str(name)
			e.raw(":")
			e.str(p.Options.Env[name])
		}
		e.raw("}")
	}
	if p.Options.Timeout > 0 {
		e.field("timeout_s")
		e.seconds(p.Options.Timeout)
	}
	if len(p.Options.Stdin) > 0 {
		e.field("stdin")
		e.content(p.Options.Stdin)
	}
	e.optionalField("max_output_bytes", p.Options.MaxOutputBytes)
	if p.Options.KillGrace.Known {
		e.field("kill_grace_s")
		e.seconds(p.Options.KillGrace.Value)
	}
	e.strField(keyField, p.Options.RequestKey)
	e.trueField("detach", p.Options.Detach)
	e.raw("}")
}
