package rpc

import (
	"time"

	"github.com/controld/controld/sandbox"
)

// SandboxResult is that of all calls about one sandbox but sandbox_remove.
type SandboxResult struct{ Status sandbox.Status }

var sandboxResultFields = []string{
	"sandbox", "state", "driver", "tier", "instance", "epoch", "started", "ends", "idle_stop_s", "cpu_s", "memory", "processes",
}

func (r *SandboxResult) decode(d *decoder) {
	o := object{fields: sandboxResultFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		r.decodeField(d, field)
	}
	d.require(&o, "sandbox")
	d.require(&o, "state")
}

func (r *SandboxResult) decodeField(d *decoder, field string) {
	s := &r.Status
	switch field {
	case "sandbox":
		s.Sandbox = d.str()
	case "state":
		s.State = sandbox.State(d.str())
	case "driver":
		s.Driver = d.str()
	case "tier":
		s.Tier = d.str()
	case "instance":
		s.Instance = d.str()
	case "epoch":
		s.Epoch = d.str()
	case "started":
		s.Started = d.time()
	case "ends":
		s.Ends = d.time()
	case "idle_stop_s":
		s.IdleStop = d.seconds(maxDuration)
	case "cpu_s":
		s.CPU = sandbox.Some(d.seconds(maxDuration))
	case "memory":
		s.Memory = sandbox.Some(d.size())
	case "processes":
		s.Processes = sandbox.Some(d.size())
	}
}

func (r *SandboxResult) encode(e encoder) {
	s := &r.Status
	e.raw(`{"sandbox":`)
	e.str(s.Sandbox)
	e.raw(`,"state":`)
	e.str(string(s.State))
	e.strField("driver", s.Driver)
	e.strField("tier", s.Tier)
	e.strField("instance", s.Instance)
	e.strField("epoch", s.Epoch)
	e.timeField("started", s.Started)
	e.timeField("ends", s.Ends)
	e.secondsField("idle_stop_s", sandbox.Optional[time.Duration]{Value: s.IdleStop, Known: s.IdleStop > 0})
	e.secondsField("cpu_s", s.CPU)
	e.optionalField("memory", s.Memory)
	e.optionalField("processes", s.Processes)
	e.raw("}")
}

// SandboxListResult is that of sandbox_list.
type SandboxListResult struct{ Sandboxes []sandbox.Status }

var sandboxListFields = []string{"sandboxes"}

func (r *SandboxListResult) decode(d *decoder) {
	o := object{fields: sandboxListFields}
	r.Sandboxes = []sandbox.Status{}
	for {
		if _, ok := d.next(&o); !ok {
			break
		}
		d.array(func() {
			var one SandboxResult
			one.decode(d)
			r.Sandboxes = append(r.Sandboxes, one.Status)
		})
	}
	d.require(&o, "sandboxes")
}

func (r *SandboxListResult) encode(e encoder) {
	e.raw(`{"sandboxes":[`)
	for i, s := range r.Sandboxes {
		if i > 0 {
			e.raw(",")
		}
		(&SandboxResult{s}).encode(e)
	}
	e.raw("]}")
}
