package prompt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

func TestEveryFamilyReadsTheCallsThatItsTemplateWrites(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		r := newRig(t, c, prompt.Keep)
		require.Equal(t, c.Calls, r.a.Ability().Calls, c.Name)
		require.True(t, r.a.Ability().Extends, c.Name)
	}
}

func TestAnUnknownFamilyIsLearnedFromItsTemplate(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		known := newRig(t, c, prompt.Keep)
		// As generation_config.json names them.
		c.StopTokens = known.a.StopTokens()
		c.Family = family.Generic
		r := newRig(t, c, prompt.Keep)
		ability := r.a.Ability()
		require.True(t, ability.Extends, c.Name)
		if c.Calls {
			require.Equal(t, known.a.Ability().Format, ability.Format, c.Name)
		}
		r.outcomes(func(name, outcome string) {
			require.NotContains(t, outcome, "WRONG", "%s: %s", c.Name, name)
			require.NotContains(t, outcome, "reply", "%s: %s", c.Name, name)
		})
	}
}
