package fold

// Why a sampled token is masked: the keys of TurnSpans.masked and of the
// ledger. A class or flag that is masked gives "class_" or "flag_" and its
// name.
const (
	MaskGradeX        = "grade_x"
	MaskCutOff        = "cut_off"
	MaskReasoning     = "reasoning"
	MaskAbandoned     = "abandoned"
	MaskUndelivered   = "undelivered"
	MaskRewrittenCall = "rewritten_call"
	MaskParked        = "parked"
)

// Why generated ids are lost: the keys of the ledger besides the reasons of
// TurnAborted (client_gone, deadline, engine, duplicate, closed).
const (
	LostAttempt = "failed_attempt"
	LostParked  = "parked"
	LostUnknown = "unknown"
)

// Why a session is parked.
const (
	FaultIllegal    = "illegal"
	FaultUnreadable = "unreadable"
	FaultTooLarge   = "too_large"
	FaultPanic      = "panic"
	// FaultBroken sessions cannot be read or written any more; only the dead
	// letters say so.
	FaultBroken = "broken"
)

// Why a grade is below A: the codes of grade_reasons. Some end in a colon and
// are followed by a name.
const (
	// Grade B.
	ReasonProofCount      = "proof_count"
	ReasonTolerance       = "tolerance:"
	ReasonTemplateChanged = "template_changed"
	ReasonAuditContext    = "audit_context:"

	// Grade C.
	ReasonLogprobKind    = "logprob_kind_unknown"
	ReasonAmbiguous      = "ambiguous_parent"
	ReasonRewrittenCall  = "rewritten_call"
	ReasonConstrained    = "constrained:"
	ReasonGreedy         = "greedy"
	ReasonVersionUnknown = "version_unknown"
	ReasonAuditSampled   = "audit_sampled:"

	// Grade D.
	ReasonTextIn           = "text_in"
	ReasonTextOut          = "text_out"
	ReasonProofUnknown     = "proof_unknown"
	ReasonNoLogprobs       = "logprobs_missing"
	ReasonLogprobNotFinite = "logprob_not_finite"
	ReasonNoTokenizer      = "tokenizer_unavailable"

	// Grade X.
	ReasonParentMismatch   = "parent_ids_mismatch"
	ReasonPromptCount      = "prompt_count_mismatch"
	ReasonLogprobCount     = "logprob_count_mismatch"
	ReasonVersionCount     = "version_count_mismatch"
	ReasonTokenizerChanged = "tokenizer_changed"
)
