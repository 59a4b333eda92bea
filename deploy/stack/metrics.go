package stack

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"turnlog.dev/exporter"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/recorder"
	"turnlog.dev/recorder/archive"
)

// metrics shows what the parts count. The parts know nothing of it: each has a
// Stats method, which is read when somebody asks.
type metrics struct {
	reg *prometheus.Registry
	// into is where series are added: the registry, or it under a label.
	into prometheus.Registerer
}

func newMetrics(version string) *metrics {
	reg := prometheus.NewRegistry()
	m := &metrics{reg: reg, into: reg}
	m.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "turnlog_build_info", Help: "The version that runs.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.reg.MustRegister(info)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{Registry: m.reg})
}

// stats is a collector that takes one look at a part and tells several values.
type stats struct {
	descs  []*prometheus.Desc
	read   func(put func(name string, value float64, labels ...string))
	kinds  map[string]prometheus.ValueType
	byName map[string]*prometheus.Desc
}

// series is one value of a part.
type series struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
}

func counter(name, help string, labels ...string) series {
	return series{name, help, prometheus.CounterValue, labels}
}

func gauge(name, help string, labels ...string) series {
	return series{name, help, prometheus.GaugeValue, labels}
}

// add returns a function that takes the series out again.
func (m *metrics) add(read func(put func(name string, value float64, labels ...string)), all ...series) (remove func()) {
	s := &stats{read: read, kinds: map[string]prometheus.ValueType{}, byName: map[string]*prometheus.Desc{}}
	for _, x := range all {
		d := prometheus.NewDesc(x.name, x.help, x.labels, nil)
		s.descs = append(s.descs, d)
		s.byName[x.name], s.kinds[x.name] = d, x.kind
	}
	m.into.MustRegister(s)
	return func() { m.into.Unregister(s) }
}

// Describe implements prometheus.Collector.
func (s *stats) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *stats) Collect(out chan<- prometheus.Metric) {
	s.read(func(name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(s.byName[name], s.kinds[name], value, labels...)
	})
}

func (m *metrics) gateway(read func() gateway.Stats) {
	m.add(func(put func(string, float64, ...string)) {
		s := read()
		put("turnlog_gateway_turns_total", float64(s.Turns))
		put("turnlog_gateway_aborted_turns_total", float64(s.Aborted))
		put("turnlog_gateway_failed_requests_total", float64(s.Failed))
		put("turnlog_gateway_prompt_tokens_total", float64(s.PromptTokens))
		put("turnlog_gateway_new_tokens_total", float64(s.NewTokens))
		put("turnlog_gateway_cached_sessions", float64(s.Sessions))
		put("turnlog_gateway_cached_bytes", float64(s.CachedBytes))
	},
		counter("turnlog_gateway_turns_total", "Turns whose answer was committed."),
		counter("turnlog_gateway_aborted_turns_total", "Model calls that were recorded as aborted."),
		counter("turnlog_gateway_failed_requests_total", "Model calls that ended in an error."),
		counter("turnlog_gateway_prompt_tokens_total", "Prompt ids of committed turns, kept ones included."),
		counter("turnlog_gateway_new_tokens_total", "Ids that committed turns added to the log."),
		gauge("turnlog_gateway_cached_sessions", "Sessions in memory."),
		gauge("turnlog_gateway_cached_bytes", "Memory of those sessions, estimated."),
	)
}

func (m *metrics) recorder(read func() recorder.Stats) {
	m.add(func(put func(string, float64, ...string)) {
		s := read()
		put("turnlog_recorder_turns_total", float64(s.Turns))
		put("turnlog_recorder_tokens_total", float64(s.Tokens))
		put("turnlog_recorder_faults_total", float64(s.Faults))
		put("turnlog_recorder_released_sessions_total", float64(s.Released))
		put("turnlog_recorder_sealed_sessions_total", float64(s.Sealed))
		put("turnlog_recorder_unbalanced_sessions_total", float64(s.Unbalanced))
		put("turnlog_recorder_reaped_sessions_total", float64(s.Reaped))
		put("turnlog_recorder_batches_total", float64(s.Batches))
		put("turnlog_recorder_split_batches_total", float64(s.Splits))
		for partition, p := range s.Partitions {
			put("turnlog_recorder_pending_events", float64(p.Pending), strconv.Itoa(partition))
		}
		put("turnlog_recorder_ledger_tokens_total", float64(s.Ledger.Generated), "generated", "")
		put("turnlog_recorder_ledger_tokens_total", float64(s.Ledger.Trainable), "trainable", "")
		for reason, n := range s.Ledger.Masked {
			put("turnlog_recorder_ledger_tokens_total", float64(n), "masked", reason)
		}
		for reason, n := range s.Ledger.Lost {
			put("turnlog_recorder_ledger_tokens_total", float64(n), "lost", reason)
		}
	},
		counter("turnlog_recorder_turns_total", "Turns written to the trajectory stream."),
		counter("turnlog_recorder_tokens_total", "Ids of those turns."),
		counter("turnlog_recorder_faults_total", "Events that could not be folded."),
		counter("turnlog_recorder_released_sessions_total", "Parked sessions that were folded again."),
		counter("turnlog_recorder_sealed_sessions_total", "Sessions that were sealed."),
		counter("turnlog_recorder_unbalanced_sessions_total", "Sealed sessions whose ledger does not add up."),
		counter("turnlog_recorder_reaped_sessions_total", "Sessions closed for being past a limit."),
		counter("turnlog_recorder_batches_total", "Updates of a whole fetch that were appended at once."),
		counter("turnlog_recorder_split_batches_total", "Batches that were refused, or lost their answer, and were appended one by one."),
		gauge("turnlog_recorder_pending_events", "Events that wait to be recorded, as every recorder of the group sees them: take the maximum of each partition, then the sum.", "partition"),
		counter("turnlog_recorder_ledger_tokens_total", "Ids of sealed sessions, by what became of them.", "account", "reason"),
	)
}

func (m *metrics) archiver(read func() archive.Stats) {
	m.add(func(put func(string, float64, ...string)) {
		s := read()
		put("turnlog_archive_sessions_total", float64(s.Sessions))
		put("turnlog_archive_events_total", float64(s.Events))
		put("turnlog_archive_bytes_total", float64(s.Bytes))
		put("turnlog_archive_segment_bytes_total", float64(s.SegmentBytes))
		put("turnlog_archive_trimmed_sessions_total", float64(s.Trimmed))
		put("turnlog_archive_trimmed_bytes_total", float64(s.TrimmedBytes))
		put("turnlog_archive_failed_rounds_total", float64(s.Failed))
		age := 0.0
		if !s.Oldest.IsZero() {
			age = time.Since(s.Oldest).Seconds()
		}
		put("turnlog_archive_oldest_kept_seconds", age)
	},
		counter("turnlog_archive_sessions_total", "Sessions written to the archive."),
		counter("turnlog_archive_events_total", "Events of both logs written to the archive."),
		counter("turnlog_archive_bytes_total", "Bytes of those events, as they travel."),
		counter("turnlog_archive_segment_bytes_total", "Bytes of the segments that hold them."),
		counter("turnlog_archive_trimmed_sessions_total", "Sessions trimmed from the log."),
		counter("turnlog_archive_trimmed_bytes_total", "Bytes of their events in the log, as they travel."),
		counter("turnlog_archive_failed_rounds_total", "Rounds that ended early; the next one goes on."),
		gauge("turnlog_archive_oldest_kept_seconds", "Age of the oldest session that is still in the log, as the last round saw it; 0 is none."),
	)
}

func (m *metrics) exporter(read func() exporter.Stats) {
	m.add(func(put func(string, float64, ...string)) {
		s := read()
		put("turnlog_exporter_rows_total", float64(s.Rows))
		put("turnlog_exporter_files_total", float64(s.Files))
		put("turnlog_exporter_bytes_total", float64(s.Bytes))
		put("turnlog_exporter_retries_total", float64(s.Retries))
		put("turnlog_exporter_released_too_late_total", float64(s.ReleasedTooLate))
		put("turnlog_exporter_waiting_groups", float64(s.Held.Groups()))
		put("turnlog_exporter_open_sessions", float64(s.Held.Open))
		put("turnlog_exporter_lag_seconds", s.Lag.Seconds())
	},
		counter("turnlog_exporter_rows_total", "Rows exported."),
		counter("turnlog_exporter_files_total", "Shards published."),
		counter("turnlog_exporter_bytes_total", "Bytes of those shards."),
		counter("turnlog_exporter_retries_total", "Retries of a log or sink that was away."),
		counter("turnlog_exporter_released_too_late_total", "Sessions released after they, or their groups, were settled: not exported."),
		gauge("turnlog_exporter_waiting_groups", "Groups that are not ready."),
		gauge("turnlog_exporter_open_sessions", "Sessions that are not sealed."),
		gauge("turnlog_exporter_lag_seconds", "Time from the last seal of the last manifest to its publication."),
	)
}

// pool adds the replicas of one model, under its label, until remove is called.
func (m *metrics) pool(model string, read func() pool.Stats) (remove func()) {
	label := prometheus.WrapRegistererWith(prometheus.Labels{"model": model}, m.reg)
	return (&metrics{reg: m.reg, into: label}).add(func(put func(string, float64, ...string)) {
		s := read()
		put("turnlog_pool_waiting_requests", float64(s.Waiting))
		put("turnlog_pool_queued_requests_total", float64(s.Queued))
		put("turnlog_pool_queue_positions_total", float64(s.Positions))
		for _, r := range s.Replicas {
			put("turnlog_pool_running_requests", float64(r.InFlight), r.Name)
			put("turnlog_pool_served_requests_total", float64(r.Served), r.Name)
			put("turnlog_pool_failed_requests_total", float64(r.Failed), r.Name)
			up := 0.0
			if r.State == "up" {
				up = 1
			}
			put("turnlog_pool_up", up, r.Name)
			draining := 0.0
			if r.State == "draining" {
				draining = 1
			}
			put("turnlog_pool_draining", draining, r.Name)
		}
	},
		gauge("turnlog_pool_waiting_requests", "Requests that wait for a replica."),
		counter("turnlog_pool_queued_requests_total", "Requests that had to wait."),
		counter("turnlog_pool_queue_positions_total", "Their places in the queue when they came, added up, 1 being the first."),
		gauge("turnlog_pool_running_requests", "Requests under way.", "backend"),
		counter("turnlog_pool_served_requests_total", "Requests that were answered, those at fault included.", "backend"),
		counter("turnlog_pool_failed_requests_total", "Requests that a replica did not answer; canceled ones are not among them.", "backend"),
		gauge("turnlog_pool_up", "1 for a replica that gets requests, 0 for one that rests, is tried after a rest, or is drained.", "backend"),
		gauge("turnlog_pool_draining", "1 for a replica that is drained: that it is not up is meant.", "backend"),
	)
}
