package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
)

// reloadOnHangup reads the configuration again at every SIGHUP, until ctx ends.
func reloadOnHangup(ctx context.Context, s *stack.Stack, log *slog.Logger, load func() (config.Config, error)) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		select {
		case <-s.Ready():
		case <-ctx.Done():
			return
		}
		for {
			select {
			case <-hangups:
			case <-ctx.Done():
				return
			}
			cfg, err := load()
			if err == nil {
				err = s.Reload(ctx, cfg)
			}
			if err != nil {
				log.ErrorContext(ctx, "the configuration was not reloaded", "error", err)
				continue
			}
			log.InfoContext(ctx, "configuration reloaded")
		}
	}()
}
