package gateway

import (
	"context"

	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// Count returns the number of prompt tokens that a request would have: placed
// in its session's tree and rendered as Complete does it, tools included.
// Nothing is recorded. A closed session still counts. Of a model whose engines
// take text it is what its files say, and 0 without them.
func (g *Gateway) Count(ctx context.Context, req Request) (n int, err error) {
	err = g.sessions.Use(ctx, req.Session, func(s *session.Session) error {
		t := &turn{g: g, session: s, req: req}
		var policy *event.ModelPolicy
		err := s.View(func(tree *tree.Tree) error {
			policy = tree.Opened.GetModelPolicy()
			return nil
		})
		if err == nil {
			err = t.resolve(ctx, policy)
		}
		if n = len(t.ids); err == nil && t.model.Wire == Text {
			n = t.model.Counter.prompt(t.req.Conversation, t.options)
		}
		return err
	})
	return n, err
}
