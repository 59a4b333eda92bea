package jet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// One pull asks for at most so much. What was pulled and not fetched waits in
// memory, for each partition. A server closes a connection that has 64 MiB
// waiting, which the pulls of all partitions together must not come to.
const (
	pullMessages = 512
	pullBytes    = 512 << 10
)

const (
	// priorityGroup is the one group that all members of ours pull for.
	priorityGroup = "members"
	// headerPin names the member that the server gives messages to.
	headerPin = "Nats-Pin-Id"
	// ackWait is when the server would deliver again by itself. It is longer
	// than any worker's life should depend on: who takes over rewinds instead,
	// so that an entry never comes before an earlier one.
	ackWait = time.Hour
	// inactive is when the server forgets a follower without a group. It is
	// made again where it was.
	inactive = 5 * time.Minute
	// patience is how many pulls may end with nothing though there is something.
	patience = 3
	// lost is a sequence that no message follows.
	lost = ^uint64(0)
	// pause keeps a broken log from being asked in a loop.
	pause = 100 * time.Millisecond
)

// subscription follows a partition through a pull consumer of the server: a
// durable one for a group, of which the server pins one member at a time, or
// one that lasts as long as the follower.
//
// The server alone would not keep the order when a member takes over: it
// delivers new messages at once and the old ones when their time is up. So a
// new member rewinds the consumer to the group's position first, and every
// member passes over what it has delivered before.
type subscription struct {
	log       *Log
	stream    *stream
	partition int
	group     string
	after     uint64
	remaining bool // what was trimmed is not missed

	life context.Context //nolint:containedctx // ends with Close
	end  context.CancelFunc

	// fetching guards what follows: one fetch at a time.
	fetching  sync.Mutex
	consumer  string // empty: to be made or found
	inbox     *nats.Subscription
	messages  chan *nats.Msg
	pull      pull
	pulls     uint64 // numbers the inbox's subjects, so that old answers can be told
	large     bool   // the next message may be larger than a pull
	pin       string
	sequence  uint64 // of the consumer's last message that came
	delivered uint64 // position of the last entry given out
	attempts  attempts
	stalls    int // how often nothing has come though there was something

	// acking guards what follows; Ack may be called during a fetch.
	acking      sync.Mutex
	outstanding []receipt
	acked       uint64
}

// pull is a request for messages that the server may still answer.
type pull struct {
	subject  string
	asked    int
	left     int
	deadline time.Time
}

// receipt is where to acknowledge a position.
type receipt struct {
	position uint64
	reply    string
}

// Subscribe implements journal.Journal.
func (l *Log) Subscribe(ctx context.Context, partition int, options journal.SubscribeOptions) (journal.Subscription, error) {
	if partition < 0 || partition >= journal.Partitions {
		return nil, fmt.Errorf("journal: subscribe: no partition %d", partition)
	}
	if options.Group != "" && !name.MatchString(options.Group) {
		return nil, fmt.Errorf("journal: subscribe: group %q: not 1 to 64 letters, digits, _ or -", options.Group)
	}
	s := &subscription{
		log: l, stream: l.stream(partition), partition: partition,
		group: options.Group, after: options.After, remaining: options.Remaining,
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if s.group == "" {
		s.delivered = s.after
		err = s.notTrimmed(ctx, s.after)
	}
	if err == nil {
		err = s.attach(ctx)
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("journal: subscribe to partition %02d: %w", partition, err)
	}
	return s, nil
}

// Fetch implements journal.Subscription. One call at a time.
func (s *subscription) Fetch(ctx context.Context, max int) ([]journal.Delivery, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	s.fetching.Lock()
	defer s.fetching.Unlock()
	for {
		list, err := s.step(ctx, max)
		switch {
		case s.life.Err() != nil:
			return nil, journal.ErrClosed
		case len(list) > 0:
			return list, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("journal: fetch: %w", ctx.Err())
		case err != nil:
			return nil, fmt.Errorf("journal: fetch from partition %02d: %w", s.partition, err)
		}
	}
}

// step waits for one message, and takes those that came with it.
func (s *subscription) step(ctx context.Context, max int) ([]journal.Delivery, error) {
	if s.consumer == "" {
		if err := s.attach(ctx); err != nil {
			return nil, s.rest(ctx, err)
		}
	}
	if err := s.listen(); err != nil {
		return nil, s.rest(ctx, err)
	}
	if len(s.messages) == 0 && s.pull.left == 0 {
		if err := s.ask(max); err != nil {
			return nil, s.rest(ctx, err)
		}
	}
	timer := time.NewTimer(time.Until(s.pull.deadline))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		s.pull.left = 0
		return nil, s.inspect(ctx)
	case m := <-s.messages:
		var list []journal.Delivery
		for {
			d, ok, err := s.take(ctx, m)
			if err != nil {
				if len(list) > 0 {
					return list, nil
				}
				return nil, s.rest(ctx, err)
			}
			if ok {
				list = append(list, d)
			}
			if len(list) >= max {
				return list, nil
			}
			select {
			case m = <-s.messages:
			default:
				return list, nil
			}
		}
	}
}

// rest waits a moment after an error, so that a caller may simply try again.
func (s *subscription) rest(ctx context.Context, err error) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return unavailable(err)
}

// listen makes an inbox if there is none.
func (s *subscription) listen() error {
	if s.inbox != nil {
		return nil
	}
	// Two pulls may overlap when the server is slow to end one.
	messages := make(chan *nats.Msg, 2*pullMessages+64)
	inbox, err := s.log.conn.nc.ChanSubscribe(s.log.conn.nc.NewInbox()+".*", messages)
	if err != nil {
		return err
	}
	s.inbox, s.messages = inbox, messages
	return nil
}

// drop forgets the inbox and what is in it.
func (s *subscription) drop() {
	if s.inbox != nil {
		_ = s.inbox.Unsubscribe()
	}
	s.inbox, s.messages, s.pull = nil, nil, pull{}
}

// ask pulls. The pull ends well before the server would take the pin away, so
// that pulling again keeps it.
func (s *subscription) ask(max int) error {
	expires := s.log.cfg.Takeover / 3
	request := struct {
		Batch    int           `json:"batch"`
		MaxBytes int           `json:"max_bytes"`
		Expires  time.Duration `json:"expires"`
		Group    string        `json:"group,omitempty"`
		Pin      string        `json:"id,omitempty"`
	}{min(max, pullMessages), pullBytes, expires, "", s.pin}
	if s.large {
		request.MaxBytes += s.log.cfg.MaxEvent
	}
	if s.group != "" {
		request.Group = priorityGroup
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	s.pulls++
	base := s.inbox.Subject[:len(s.inbox.Subject)-1]
	s.pull = pull{base + strconv.FormatUint(s.pulls, 10), request.Batch, request.Batch, time.Now().Add(expires + time.Second)}
	return s.log.conn.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+s.stream.name+"."+s.consumer, s.pull.subject, data)
}

// take handles one message of the inbox: an entry, or the server's word about a
// pull.
func (s *subscription) take(ctx context.Context, m *nats.Msg) (d journal.Delivery, ok bool, err error) {
	if status := m.Header.Get(headerStatus); status != "" && len(m.Data) == 0 {
		return d, false, s.status(m, status)
	}
	if m.Subject == "" || m.Reply == "" {
		return d, false, nil
	}
	meta, err := m.Metadata()
	if err != nil {
		return d, false, nil // not from a consumer
	}
	if s.large = false; s.pull.left > 0 {
		s.pull.left--
	}
	if s.group != "" {
		if pin := m.Header.Get(headerPin); pin != s.pin {
			return d, false, s.takeOver(ctx, pin, meta)
		}
	}
	if meta.Sequence.Consumer != s.sequence+1 {
		// Something was lost on the way, or somebody has rewound.
		return d, false, s.resume(ctx)
	}
	s.sequence, s.stalls = meta.Sequence.Consumer, 0
	position := meta.Sequence.Stream
	if !s.note(position, m.Reply) {
		return d, false, nil
	}
	s.delivered = position
	return s.delivery(m, meta), true, nil
}

// note keeps where to acknowledge a position, and reports whether its entry is
// new here.
func (s *subscription) note(position uint64, reply string) bool {
	isNew := position > s.delivered
	if s.group == "" {
		return isNew
	}
	s.acking.Lock()
	defer s.acking.Unlock()
	if isNew {
		s.outstanding = append(s.outstanding, receipt{position, reply})
		return true
	}
	for i := range s.outstanding {
		if s.outstanding[i].position == position {
			s.outstanding[i].reply = reply
		}
	}
	if position == s.acked {
		// It was acknowledged while the server had rewound.
		_ = s.log.conn.nc.Publish(reply, ackBody)
	}
	return false
}

func (s *subscription) delivery(m *nats.Msg, meta *nats.MsgMetadata) journal.Delivery {
	stored := message{
		subject: m.Subject, header: m.Header, data: m.Data,
		position: meta.Sequence.Stream, time: meta.Timestamp, stream: s.stream.id,
	}
	d := journal.Delivery{Session: stored.session(), Attempt: s.attempts.of(stored.position)}
	d.Entry, d.Err = stored.entry()
	if d.Err != nil {
		d.Raw = m.Data
		d.Tip.Position, d.Time, d.Stream = stored.position, stored.time, stored.stream
	} else {
		d.Prev, _ = event.ParseHash(m.Header.Get(headerPrev)) // entry could
	}
	return d
}

// status handles what the server says instead of a message.
func (s *subscription) status(m *nats.Msg, status string) error {
	reason := m.Header.Get(headerReason)
	if status == "409" && reason == "Consumer Deleted" {
		s.forget()
		return errors.New(reason)
	}
	if m.Subject != s.pull.subject {
		return nil // about a pull that is over
	}
	switch status {
	case "100": // alive
	case "404", "408": // the pull has ended
		s.pull.left = 0
		return s.inspect(s.life)
	case "423": // another member is pinned, or nobody
		s.pull.left, s.pin = 0, ""
	case "409": // the pull is full, or the server moves
		s.large = s.pull.left == s.pull.asked // not even one message had room
		s.pull.left = 0
	default: // nobody is there to answer: the server, or the consumer, is gone
		s.pull.left = 0
		return errors.Join(fmt.Errorf("pull: %s %s", status, reason), s.inspect(s.life))
	}
	return nil
}

var ackBody = []byte("+ACK")

// Ack implements journal.Subscription. It returns once the server has noted the
// position.
func (s *subscription) Ack(ctx context.Context, d journal.Delivery) error {
	if s.life.Err() != nil {
		return journal.ErrClosed
	}
	if s.group == "" {
		return nil
	}
	s.acking.Lock()
	reply := ""
	for i, r := range s.outstanding {
		if r.position > d.Tip.Position {
			break
		}
		reply = r.reply
		if r.position == d.Tip.Position {
			s.outstanding = s.outstanding[i+1:]
			s.acked = r.position
			break
		}
	}
	s.acking.Unlock()
	if reply == "" {
		return nil // acknowledged before
	}
	asking, cancel := s.log.conn.patient(ctx)
	defer cancel()
	if _, err := s.log.conn.nc.RequestWithContext(asking, reply, ackBody); err != nil {
		return fmt.Errorf("journal: acknowledge position %d: %w", d.Tip.Position, failed(ctx, err))
	}
	return nil
}

// Close implements journal.Subscription.
func (s *subscription) Close() error {
	if s.life.Err() != nil {
		return nil
	}
	s.end()
	s.fetching.Lock()
	defer s.fetching.Unlock()
	s.drop()
	if s.consumer == "" || s.log.conn.nc.IsClosed() {
		return nil
	}
	// All of this only saves others a wait.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), requestTimeout)
	defer cancel()
	if s.group == "" {
		err := s.stream.handle.DeleteConsumer(ctx, s.consumer)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			s.log.conn.logger.Debug("follower left to expire", "consumer", s.consumer, "error", err)
		}
		return nil
	}
	var err error
	if s.pin == "" {
		// Being asked, the server sees that nobody waits for our pull any more;
		// else it might pin that.
		_, err = s.stream.handle.Consumer(ctx, s.consumer)
	} else if err = s.rewind(ctx, s.delivered); err == nil {
		err = s.stream.handle.UnpinConsumer(ctx, s.consumer, priorityGroup)
	}
	if err != nil {
		s.log.conn.logger.Debug("pin left to expire", "consumer", s.consumer, "error", err)
	}
	return nil
}
