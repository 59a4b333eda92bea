package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/recorder"
	"turnlog.dev/recorder/archive"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/schema/journal/jet"
)

// Check reports all faults of a configuration: its own, and those that each
// module finds in its part.
func Check(cfg config.Config) error {
	rec, err := recorderConfig(cfg)
	if err == nil {
		err = rec.Validate()
	}
	if cfg.Recorder.Archive.After != 0 {
		err = errors.Join(err, archiveConfig(cfg).Validate(), checkWindow(cfg))
	}
	faults := []error{cfg.Validate(), gatewayConfig(cfg).Validate(), httpConfig(cfg).Validate(), err, exporterConfig(cfg).Validate()}
	for _, m := range cfg.Models {
		for key, text := range map[string]string{"default": m.Sampling.Default, "override": m.Sampling.Override} {
			if err := checkSampling(text); err != nil {
				faults = append(faults, fmt.Errorf("config: model %s: sampling.%s: %w", m.Name, key, err))
			}
		}
	}
	return errors.Join(faults...)
}

// checkWindow reports a window in which a turn that was under way at its
// session's close could not be recorded any more.
func checkWindow(cfg config.Config) error {
	longest := cfg.Gateway.GenerateTimeout + cfg.Gateway.AppendTimeout
	if after := cfg.Recorder.Archive.After; after <= longest {
		return fmt.Errorf("config: recorder.archive.after: %s is not longer than a turn may take, which is %s (gateway.generate_timeout and gateway.append_timeout)", after, longest)
	}
	return nil
}

func checkSampling(text string) error {
	if text == "" {
		return nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return err
	}
	_, err := gateway.ParseSampling([]byte(text))
	return err
}

func gatewayConfig(cfg config.Config) gateway.Config {
	g := cfg.Gateway
	return gateway.Config{
		Tenant: cfg.Tenant, Instance: g.Instance, CacheBytes: g.CacheBytes,
		AppendTimeout: g.AppendTimeout, GenerateTimeout: g.GenerateTimeout, DefaultMaxTokens: g.DefaultMaxTokens,
	}
}

func httpConfig(cfg config.Config) httpapi.Config {
	return httpapi.Config{MaxBody: cfg.Gateway.MaxBody, PingEvery: cfg.Gateway.PingEvery}
}

func recorderConfig(cfg config.Config) (recorder.Config, error) {
	c := recorder.DefaultConfig()
	c.Worker.CacheBytes = cfg.Recorder.CacheBytes
	c.Worker.AtOnce = cfg.Log.Durability == string(jet.Single)
	// While a turn is waited for, its session says nothing.
	c.Reaper.Allow(cfg.Gateway.GenerateTimeout + cfg.Gateway.AppendTimeout)
	p, err := Policy(cfg)
	c.Worker.Policy = p
	return c, err
}

func archiveConfig(cfg config.Config) archive.Config {
	c := archive.DefaultConfig()
	c.After, c.Every, c.KeepTrajectories = cfg.Recorder.Archive.After, cfg.Recorder.Archive.Every, cfg.Recorder.Archive.KeepTrajectories
	return c
}

// Policy is the recorder's policy in a configuration.
func Policy(cfg config.Config) (fold.Policy, error) {
	c := cfg.Recorder.Policy
	p := fold.DefaultPolicy()
	for class := range p.Classes {
		p.Classes[class] = fold.Mask
	}
	for _, class := range c.Train {
		p.Classes[class] = fold.Train
	}
	p.Abandoned, p.Undelivered, p.CutOff = fold.Use(c.Abandoned), fold.Use(c.Undelivered), fold.Use(c.CutOff)
	p.RewrittenCalls, p.Reasoning = fold.Use(c.RewrittenCalls), fold.Use(c.Reasoning)
	p.MaskFlags, p.Audit = c.MaskFlags, c.Audit
	for _, text := range c.Grades {
		reason, grade, ok := strings.Cut(text, "=")
		if !ok {
			return p, fmt.Errorf("config: recorder.policy.grades: %q is not REASON=GRADE", text)
		}
		if p.Grades == nil {
			p.Grades = map[string]fold.Letter{}
		}
		p.Grades[reason] = fold.Letter(grade)
	}
	return p, nil
}

func exporterConfig(cfg config.Config) exporter.Config {
	e := cfg.Exporter
	c := exporter.DefaultConfig()
	c.Tenant, c.Temp = cfg.Tenant, e.Temp
	c.Flush, c.FlushTokens, c.RewardDeadline, c.GroupDeadline = e.Flush, e.FlushTokens, e.RewardDeadline, e.GroupDeadline
	c.Partial, c.Grades, c.Classes = e.Partial, e.Grades, e.Classes
	c.MinTokens, c.MaxTokens, c.MinReward, c.MaxReward, c.MinVersion = e.MinTokens, e.MaxTokens, e.MinReward, e.MaxReward, e.MinVersion
	c.KeepTail, c.FileTokens, c.Compression = e.KeepTail, e.FileTokens, e.Compression
	c.CompactEvery, c.CompactFiles, c.CollectAfter = e.CompactEvery, e.CompactFiles, e.CollectAfter
	return c
}
