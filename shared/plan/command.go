package plan

// Command is a decision to disrupt: the nodes of some claims leave together, once the nodes that replace them are ready.
type Command struct {
	// ID is the same for equal commands of equal snapshots.
	ID string `json:"id"`
	// Reason is Empty, Underutilized or Drifted, as budgets name it.
	Reason string `json:"reason"`
	// Leaving names the claims whose nodes leave, in the order in which they go.
	Leaving []string `json:"leaving"`
	// Replacements are the claims to make first: no node leaves before theirs are initialized.
	Replacements []Claim `json:"replacements,omitempty"`
	// Placed says where pods of leaving nodes are expected that fit on nodes which stay; all others are in Replacements.
	Placed []Placement `json:"placed,omitempty"`
	// SavesMicroUSDPerHour is the price of what leaves less that of the replacements; negative where drift costs more than what was.
	SavesMicroUSDPerHour int64 `json:"savesMicroUSDPerHour"`
	// Note says in one sentence for people what the command gains, and at what cost.
	Note string `json:"note"`
}
