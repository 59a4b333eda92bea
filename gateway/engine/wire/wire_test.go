package wire

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

func TestAnIDIsDigitsAndNothingElse(t *testing.T) {
	for raw, want := range map[string]uint32{"0": 0, "7": 7, "151645": 151645, "4294967295": math.MaxUint32} {
		id, err := ID([]byte(raw))
		require.NoError(t, err)
		require.Equal(t, want, id)
	}
	for _, raw := range []string{"", "7.0", "-1", `"7"`, "true", "null", "7e2", "4294967296", "99999999999", "[7]"} {
		_, err := ID([]byte(raw))
		require.ErrorIs(t, err, ErrNotInteger, raw)
	}
}

func TestALogprobIsAFiniteNumber(t *testing.T) {
	for _, f := range []float32{0, -0.5, -1e-7, -3.4028235e+38, math.SmallestNonzeroFloat32, -12.345679} {
		got, err := Logprob(AppendLogprob(nil, f))
		require.NoError(t, err)
		require.Equal(t, math.Float32bits(f), math.Float32bits(got))
	}
	for _, raw := range []string{"null", "NaN", "-Infinity", `"-0.5"`, "-1e39", "true", "", "[]"} {
		_, err := Logprob([]byte(raw))
		require.ErrorIs(t, err, ErrNotFinite, raw)
	}
	require.Equal(t, "null", string(AppendLogprob(nil, float32(math.NaN()))))
}

func TestIDsAreReadAndComparedAsTheyStand(t *testing.T) {
	ids := []uint32{1, 22, 333}
	got, err := IDs(nil, AppendIDs(nil, ids))
	require.NoError(t, err)
	require.Equal(t, ids, got)
	for raw, want := range map[string]bool{"[1,22,333]": true, "[1, 22, 333 ]": true, "[1,22]": false, "[1,22,333,4]": false, "[1,22,334]": false, "[]": false} {
		same, err := EqualIDs([]byte(raw), ids)
		require.NoError(t, err)
		require.Equal(t, want, same, raw)
	}
	_, err = EqualIDs([]byte("[1,22.0,333]"), ids)
	require.ErrorIs(t, err, ErrNotInteger)
	_, err = IDs(nil, []byte(`"1"`))
	require.ErrorIs(t, err, ErrNotArray)
}

func TestEventsOfAnySizeAndCutAnywhereAreReadWhole(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	stream := ": comment\n\ndata: one\n\nevent: named\r\ndata: two\r\ndata:lines\r\n\r\ndata: " + long + "\n\nid: 4\n\ndata: [DONE]\n\n"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		e := NewEvents(r)
		for _, want := range []string{"one", "two\nlines", long, "[DONE]"} {
			data, err := e.Next()
			require.NoError(t, err, name)
			require.Equal(t, want, string(data))
		}
		_, err := e.Next()
		require.ErrorIs(t, err, io.EOF)
	}
	_, err := NewEvents(strings.NewReader("data: half\n")).Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = NewEvents(strings.NewReader("data: ha")).Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestAnEchoedPromptIsElidedOnlyWhereItIsTheValueOfItsKey(t *testing.T) {
	const want = `{"a":[1,2],"prompt_token_ids":null,"b":1}`
	for _, data := range []string{`{"a":[1,2],"prompt_token_ids":[1,2],"b":1}`, `{"a":[1,2],"prompt_token_ids": [1,2],"b":1}`} {
		got, ok := Elide([]byte(data), "prompt_token_ids", []byte("[1,2]"))
		require.True(t, ok)
		require.Equal(t, want, strings.ReplaceAll(string(got), ": null", ":null"))
		require.NoError(t, rawjson.Valid(got))
	}
	got, ok := Elide([]byte(`{"prompt_token_ids":[1]}`), "prompt_token_ids", []byte("[1]"))
	require.False(t, ok, "shorter than null")
	require.Equal(t, `{"prompt_token_ids":[1]}`, string(got))
	for _, data := range []string{`{"a":[1,2]}`, `{"a":"\"prompt_token_ids\":"}`, `{"prompt_token_ids":[1,3]}`} {
		got, ok := Elide([]byte(data), "prompt_token_ids", []byte("[1,2]"))
		require.False(t, ok)
		require.Equal(t, data, string(got))
	}
}

func TestAnErrorSaysWhatTheEngineSaid(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"a","code":400}}`:          "a",
		`{"error":"b"}`:                                 "b",
		`{"object":"error","message":"c","code":400}`:   "c",
		`{"detail":"d"}`:                                "d",
		`<html>e</html>`:                                "<html>e</html>",
		`{"detail":[{"loc":["body"],"msg":"invalid"}]}`: `{"detail":[{"loc":["body"],"msg":"invalid"}]}`,
	} {
		require.Equal(t, want, Message([]byte(body)))
	}
	require.LessOrEqual(t, len(Message([]byte(strings.Repeat("é", 5000)))), 510)
	for _, m := range []string{
		"This model's maximum context length is 4096 tokens", "The input (9 tokens) is longer than the model's context length (5 tokens).",
		"the request exceeds the available context size", `{"error":{"type":"exceed_context_size_error","message":"the request exceeds the available context size"}}`,
	} {
		require.Equal(t, engine.TooLong, StatusError(400, "", []byte(m)).Class, m)
	}
	require.Equal(t, engine.Failed, EventError([]byte(`{"message":"died"}`)).Class)
	require.Equal(t, engine.Refused, EventError([]byte(`{"message":"bad","code":400}`)).Class)
}

func TestAURLThatIsNoServersRootIsRefused(t *testing.T) {
	for _, u := range []string{"", "localhost:30000", "ftp://h", "http://", "http://h?x=1", "http://h#x", "://", "http://secret@h", "http://u:secret@h"} {
		_, err := New(Config{URL: u})
		require.Error(t, err, u)
		require.NotContains(t, err.Error(), "secret")
	}
	c, err := New(Config{URL: "http://h:1/base/"})
	require.NoError(t, err)
	require.Equal(t, "http://h:1/base", c.URL())
}

func TestARedirectIsNotFollowed(t *testing.T) {
	reached := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			reached = true
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	c, err := New(Config{URL: srv.URL})
	require.NoError(t, err)
	_, err = c.Call(t.Context(), http.MethodPost, "/generate", []byte(`{}`))
	require.Equal(t, engine.Refused, engine.ClassOf(err))
	require.False(t, reached)
}

func TestAnAnswerThatIsNotJSONIsBroken(t *testing.T) {
	for body, words := range map[string]string{`<html>`: "not JSON", `{"a": NaN}`: "not finite", `{"a":`: "not JSON"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		c, err := New(Config{URL: srv.URL})
		require.NoError(t, err)
		_, err = c.Call(t.Context(), http.MethodGet, "/", nil)
		var failed *engine.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, engine.Broken, failed.Class)
		require.ErrorContains(t, err, words)
		srv.Close()
	}
}

func TestAnObjectLeavesOutWhatIsUnset(t *testing.T) {
	half := 0.5
	o := NewObject(nil)
	o.Text("a", "")
	o.Texts("b", nil)
	o.Float("c", nil)
	o.Text("d", `"x"`)
	o.Texts("e", []string{"1", "2"})
	o.Float("f", &half)
	o.IDs("g", []uint32{1, 2})
	o.Object("h", func(o *Object) { o.Bool("i", true); o.Int("j", -3) })
	require.Equal(t, `{"d":"\"x\"","e":["1","2"],"f":0.5,"g":[1,2],"h":{"i":true,"j":-3}}`, string(o.End()))
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\n\ndata: b")
	f.Add("data:\r\n\r\n:\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		e := NewEvents(strings.NewReader(s))
		for range len(s) + 1 {
			if _, err := e.Next(); err != nil {
				return
			}
		}
		t.Fatal("more events than bytes")
	})
}

func TestABodyInPartsIsReadAsOneAsOftenAsNeeded(t *testing.T) {
	sent := &parts{list: [][]byte{nil, []byte("ab"), []byte("c"), nil}}
	require.NoError(t, iotest.TestReader(&reader{parts: sent}, []byte("abc")))
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	sent.setBody(req)
	require.EqualValues(t, 3, req.ContentLength)
	for range 2 {
		b, err := io.ReadAll(req.Body)
		require.NoError(t, err)
		require.Equal(t, "abc", string(b))
		req.Body, err = req.GetBody() // as for a connection that was gone
		require.NoError(t, err)
	}
}

// late is a transport that goes on reading a body after its answer, or its failure.
type late struct {
	bodies []io.ReadCloser
	err    error
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	again, err := r.GetBody()
	l.bodies = append(l.bodies, r.Body, again)
	if l.err != nil {
		err = l.err
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

func TestNothingOfABodyIsReadOnceTheCallIsOver(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no route")} {
		transport := &late{err: failure}
		c, err := New(Config{URL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: transport}})
		require.NoError(t, err)
		body := []byte("what is used again")
		resp, err := c.Post(t.Context(), "/", "", body)
		if failure == nil {
			require.NoError(t, err)
			first := make([]byte, 4)
			_, err = io.ReadFull(transport.bodies[0], first)
			require.NoError(t, err)
			require.Equal(t, "what", string(first))
			resp.Close()
		}
		for _, b := range transport.bodies {
			n, err := b.Read(make([]byte, 4))
			require.Zero(t, n)
			require.ErrorIs(t, err, errOver)
		}
	}
}

func TestATallyRefusesWhatCannotBe(t *testing.T) {
	for want, f := range map[string]func(*Tally) error{
		"above 0: does the server return logits": func(a *Tally) error { return a.Emit(engine.Chunk{IDs: []uint32{5}, Logprobs: []float32{0.5}}) },
		"other prompt ids than the 2":            func(a *Tally) error { return a.Echo([]byte(`[1,3]`)) },
		"prompt_token_ids: ":                     func(a *Tally) error { return a.Echo([]byte(`[1,2.0]`)) },
		"counts 3 prompt tokens where 2":         func(a *Tally) error { return a.CountPrompt([]byte(`3`)) },
		"counts 2 completion tokens but sent 0":  func(a *Tally) error { return a.CountTokens([]byte(`2`)) },
		"weight_versions cover 1 tokens of 0":    func(a *Tally) error { return a.Spans([]byte(`[{"version":"1","start":0,"end":1}]`)) },
		"stands after token 0":                   func(a *Tally) error { return a.Spans([]byte(`[{"version":"1","start":1,"end":2}]`)) },
	} {
		a := NewTally(&engine.Request{Prompt: []uint32{1, 2}, RoutedFrom: -1}, func(engine.Chunk) error { return nil })
		err := f(a)
		require.Equal(t, engine.Broken, engine.ClassOf(err), want)
		require.ErrorContains(t, err, want)
		require.Empty(t, a.Report.Versions)
		require.Zero(t, a.Report.Proof)
	}
	a := NewTally(&engine.Request{Prompt: []uint32{1, 2}, RoutedFrom: -1}, func(engine.Chunk) error { return nil })
	a.OneVersion("7")
	require.Empty(t, a.Report.Versions, "of no token")
	require.NoError(t, a.Emit(engine.Chunk{IDs: []uint32{5, 6}, Logprobs: []float32{0.0005, -1}}), "what rounding lifts")
	a.OneVersion("")
	require.Empty(t, a.Report.Versions, "it is not known")
	a.OneVersion("7")
	require.Len(t, a.Report.Versions, 1)
	require.Equal(t, uint32(2), a.Report.Versions[0].GetCount())
}

// TestABodyIsSaidToBeJSON: the engines' servers read no other.
func TestABodyIsSaidToBeJSON(t *testing.T) {
	kinds := map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kinds[r.Method] = r.Header.Get("Content-Type")
		_, _ = io.WriteString(w, "{}")
	}))
	defer srv.Close()
	c, err := New(Config{URL: srv.URL})
	require.NoError(t, err)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		_, err = c.Call(t.Context(), method, "/x", []byte("{}"))
		require.NoError(t, err)
	}
	require.Equal(t, map[string]string{http.MethodGet: "", http.MethodPost: "application/json"}, kinds)
}
