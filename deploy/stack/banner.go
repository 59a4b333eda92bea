package stack

import (
	"fmt"
	"strings"
)

// banner tells a person what runs and how to use it.
func (s *Stack) banner(l *logs) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if s.roles.Gateway {
		line("turnlog %s", s.opt.Version)
		line("  gateway    http://%s", s.addr)
		line("  admin key  %s", s.cfg.AdminFile())
	}
	where := s.cfg.Log.Servers()
	if l.embedded {
		where = fmt.Sprintf("%s/log, room for %s", s.cfg.Data, size(l.room.streams))
	}
	line("  log        %s (durability %s)", where, s.cfg.Log.Durability)
	if s.roles.Exporter {
		line("  shards     %s", s.cfg.Shards())
	}
	if s.roles.Gateway {
		m := s.cfg.Models[0]
		line("  model      %s (%s)", m.Name, m.Engine)
		line("\nTry it:")
		line(`  KEY=$(curl -s http://%s/sessions -H "Authorization: Bearer $(cat %s)" -d '{}' | sed 's/.*"key":"\([^"]*\)".*/\1/')`, s.addr, s.cfg.AdminFile())
		line(`  curl -s http://%s/v1/chat/completions -H "Authorization: Bearer $KEY" -d '{"model":"%s","messages":[{"role":"user","content":"Hello"}]}'`, s.addr, m.Name)
		line("\nCtrl-C stops it.")
	}
	fmt.Fprint(s.opt.Out, b.String())
}

// size is a number of bytes for people.
func size(n int64) string {
	f, unit := float64(n), 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.3g %s", f, []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}
