package family_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
)

func TestFamiliesAreDetectedFromTokenizerAndTemplate(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		got := family.Detect(family.Evidence{Template: c.Template(), Added: c.Tokenizer().Added()})
		require.Equal(t, c.Family.Name, got.Name, c.Name)
	}
	got := family.Detect(family.Evidence{Template: demo.Template(), Added: demo.Tokenizer().Added()})
	require.Equal(t, family.Qwen3.Name, got.Name)
}

func TestWhatNoFamilyFitsIsGeneric(t *testing.T) {
	got := family.Detect(family.Evidence{Template: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"})
	require.Equal(t, family.Generic.Name, got.Name)
}

func TestFamiliesCanBeNamed(t *testing.T) {
	for _, f := range family.All() {
		got, err := family.ByName(f.Name)
		require.NoError(t, err)
		require.Equal(t, f.Name, got.Name)
	}
	_, err := family.ByName("qwen4")
	require.ErrorContains(t, err, `"qwen4" is not known; there are chatml, qwen3,`)
}

func TestEveryFamilyThatIsKnownHasBothPolicies(t *testing.T) {
	for _, f := range family.All() {
		require.True(t, f.Allows(family.KeepHistory), f.Name)
		require.True(t, f.Allows(family.VendorHistory), f.Name)
	}
	one := family.Family{Policies: []family.Policy{family.VendorHistory}}
	require.False(t, one.Allows(family.KeepHistory))
}

func FuzzDetect(f *testing.F) {
	for _, c := range familytest.Checkpoints() {
		f.Add(c.Template(), c.Special[0], c.Special[len(c.Special)-1], "")
	}
	f.Add("", "", "", "deepseek_v32")
	f.Fuzz(func(t *testing.T, template, one, two, kind string) {
		e := family.Evidence{Template: template, ModelType: kind, Added: []tokenizer.AddedToken{{Content: one}, {Content: two}}}
		got := family.Detect(e)
		named, err := family.ByName(got.Name)
		require.NoError(t, err)
		require.Equal(t, named.Name, family.Detect(e).Name)
	})
}
