package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/tokenizer/demo"
)

func engineCommand() *cobra.Command {
	return group("engine", "Engines for trying things out", mockCommand())
}

// mockCommand runs the mock engine with the demo model in a process of its own.
func mockCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mock", Short: "Run the mock engine: the wires of sglang, vLLM, llama.cpp and OpenAI, without a GPU", Args: noArguments}
	listen := cmd.Flags().String("listen", "127.0.0.1:8421", "address to listen on")
	journal := cmd.Flags().String("journal", "", "file that every sampled answer is appended to, as JSON lines")
	model := cmd.Flags().String("model", "demo", "name that the model is served under")
	adapters := cmd.Flags().StringSlice("adapters", nil, "names of adapters that are served beside it")
	seed := cmd.Flags().Uint64("seed", 1, "seed of everything random")
	noncanonical := cmd.Flags().Float64("non-canonical", 0.02, "chance for a token to be sampled as two that spell the same")
	delay := cmd.Flags().Duration("delay", 0, "wait before the first token")
	pace := cmd.Flags().Duration("pace", 0, "wait between two tokens")
	experts := cmd.Flags().Bool("experts", false, "play a mixture model that says which experts it chose")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg := mock.Config{
			Tokenizer: demo.Tokenizer(), Model: *model, Adapters: *adapters, Seed: *seed, NonCanonical: *noncanonical,
			Delay: *delay, Pace: *pace,
		}
		if *experts {
			cfg.Experts = mock.SomeExperts
		}
		if *journal != "" {
			f, err := os.OpenFile(*journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			defer f.Close()
			cfg.Journal = io.Writer(f)
		}
		srv, err := mock.New(cfg)
		if err != nil {
			return err
		}
		ln, err := mock.Listen(*listen)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "mock engine  http://%s\n", ln.Addr())
		return srv.Run(cmd.Context(), ln)
	}
	return cmd
}
