package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/tokenizer/hub"
)

// root is the command line. Every command that runs something takes the whole
// configuration.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "turnlog",
		Short:         "Records what language-model agents do, token by token, for training",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(
		run("up", "Run everything in one process", stack.All),
		run("gateway", "Run a gateway", stack.Roles{Gateway: true}),
		run("recorder", "Run a recorder", stack.Roles{Recorder: true}),
		run("exporter", "Run an exporter", stack.Roles{Exporter: true}),
		exportCommand(), replayCommand(), verifyCommand(), parkedCommand(), archiveCommand(), sessionsCommand(), shardsCommand(),
		demoCommand(), engineCommand(), versionCommand(),
	)
	return cmd
}

// group is a command that only has others below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// configured is a command that reads the configuration first.
func configured(cmd *cobra.Command, do func(cmd *cobra.Command, cfg config.Config) error) *cobra.Command {
	return reloadable(cmd, func(cmd *cobra.Command, cfg config.Config, _ loader) error { return do(cmd, cfg) })
}

// loader reads a configuration from where it was read before.
type loader func() (config.Config, error)

// reloadable is configured for a command that reads it again later.
func reloadable(cmd *cobra.Command, do func(cmd *cobra.Command, cfg config.Config, load loader) error) *cobra.Command {
	file := cmd.Flags().String("config", os.Getenv("TURNLOG_CONFIG"), "configuration file, YAML")
	check := cmd.Flags().Bool("check-config", false, "check the configuration and end")
	show := cmd.Flags().Bool("print-config", false, "print the configuration that is in force and end")
	keys := pflag.NewFlagSet("configuration", pflag.ContinueOnError)
	config.AddFlags(keys)
	cmd.Flags().AddFlagSet(keys)
	cmd.SetUsageFunc(usage(cmd, keys))
	cmd.Args = noArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		load := func() (config.Config, error) {
			return config.Load(config.Source{File: *file, Env: os.Environ(), Flags: cmd.Flags()})
		}
		cfg, err := load()
		switch {
		case err != nil:
			return err
		case *show:
			text, err := cfg.YAML()
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		}
		if err := stack.Check(cfg); err != nil {
			return err
		}
		if *check {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
			return err
		}
		return do(cmd, cfg, load)
	}
	return cmd
}

// usage shows the flags of a command and, below them, the keys of the
// configuration: all where parts run, and elsewhere the few that say where things
// are.
func usage(cmd *cobra.Command, keys *pflag.FlagSet) func(*cobra.Command) error {
	plain := cmd.UsageFunc()
	return func(cmd *cobra.Command) error {
		hide := func(hidden func(*pflag.Flag) bool) { keys.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden(f) }) }
		all := cmd.Annotations[runsParts] != ""
		hide(func(f *pflag.Flag) bool {
			return all || !slices.Contains([]string{"data", "listen", "log.url"}, f.Name)
		})
		err := plain(cmd)
		hide(func(*pflag.Flag) bool { return false })
		if all {
			cmd.Println("\nConfiguration (each of these is also a key of the file and a TURNLOG_ variable):\n" + strings.TrimSuffix(keys.FlagUsagesWrapped(120), "\n"))
		} else {
			cmd.Println("\nEvery key of the configuration is a flag of this command, too: turnlog up --help lists them.")
		}
		return err
	}
}

// runsParts marks commands that run parts of the stack.
const runsParts = "runs parts"

// noArguments is for commands that take only flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q: %s takes flags only; --help lists them", args[0], cmd.CommandPath())
	}
	return nil
}

// run is a command that runs parts of the stack until it is told to stop.
func run(name, short string, roles stack.Roles) *cobra.Command {
	return reloadable(&cobra.Command{Use: name, Short: short, Annotations: map[string]string{runsParts: "yes"}}, func(cmd *cobra.Command, cfg config.Config, load loader) error {
		if roles != stack.All && cfg.Log.URL == "" {
			return errors.New("log.url: a part by itself needs the URL of a NATS server (--log.url); turnlog up embeds one")
		}
		log := logger(cfg, cmd.ErrOrStderr())
		s, err := stack.New(cfg, roles, stack.Options{
			Log: log, Out: cmd.OutOrStdout(), Version: version(), Fault: faults(),
			Download: downloads(cmd, log),
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		reloadOnHangup(ctx, s, log, load)
		return s.Run(ctx)
	})
}

// downloads shows the download of a model's files: drawn on a terminal, a line
// for each file elsewhere.
func downloads(cmd *cobra.Command, log *slog.Logger) func(hub.Progress) {
	if isTerminal(cmd.ErrOrStderr()) {
		return hub.NewBar(cmd.ErrOrStderr()).Draw
	}
	return func(p hub.Progress) {
		if p.Done == p.Total {
			log.InfoContext(cmd.Context(), "downloaded", "file", p.File, "bytes", p.Total)
		}
	}
}

// quiet is a logger that leaves a terminal to the progress line: only what is
// wrong is logged there, unless more is asked for.
func quiet(cmd *cobra.Command, cfg config.Config) *slog.Logger {
	if isTerminal(cmd.ErrOrStderr()) && cfg.Logging.Level == "info" {
		cfg.Logging.Level = "warn"
	}
	return logger(cfg, cmd.ErrOrStderr())
}

// logger writes for people on a terminal and for machines elsewhere.
func logger(cfg config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Logging.Level)); err != nil {
		level = slog.LevelInfo
	}
	opt := &slog.HandlerOptions{Level: level}
	format := cfg.Logging.Format
	if format == "" && isTerminal(w) {
		format = "text"
	}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, opt))
	}
	return slog.New(slog.NewJSONHandler(w, opt))
}
