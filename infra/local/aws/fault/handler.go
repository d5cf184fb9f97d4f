package fault

import (
	"encoding/json"
	"net/http"
	"slices"
)

// Handler serves the faults over HTTP, for tests and people that are outside the process:
//
//	GET    /faults       rules in force and how often each acted
//	POST   /faults       add a Document's rules, then carry out its acts; answers the rules' ids
//	PUT    /faults       put a Document in the place of all rules
//	DELETE /faults[/ID]  take all rules, or one, out of force
//	GET    /fired        what acted; DELETE forgets
//	GET    /calls        calls made, with ?action= and ?code= to choose; DELETE forgets
//	POST   /acts         carry out one Act
//
// Bodies and answers are JSON; a body that does not decode changes nothing and is answered 400 with the reason.
func Handler(in *Injector, log *Log, world World) http.Handler {
	h := handler{in, log, world}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"rules": in.Rules()}) })
	mux.HandleFunc("POST /faults", h.add)
	mux.HandleFunc("PUT /faults", h.replace)
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) { in.Clear(); w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("DELETE /faults/{id}", h.remove)
	mux.HandleFunc("GET /fired", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"counts": in.Counts(), "fired": append([]Event{}, in.Fired()...)})
	})
	mux.HandleFunc("DELETE /fired", func(w http.ResponseWriter, _ *http.Request) { in.ForgetFired(); w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /calls", h.calls)
	mux.HandleFunc("DELETE /calls", func(w http.ResponseWriter, _ *http.Request) { log.Reset(); w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /acts", h.act)
	return mux
}

type handler struct {
	in    *Injector
	log   *Log
	world World
}

func (h handler) add(w http.ResponseWriter, r *http.Request) {
	doc, err := Decode(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ids, err := h.in.Add(doc.Rules...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.finish(w, r, doc.Acts, ids)
}

func (h handler) replace(w http.ResponseWriter, r *http.Request) {
	doc, err := Decode(r.Body)
	if err == nil {
		err = h.in.Replace(doc)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var ids []string
	for _, rule := range h.in.Rules() {
		ids = append(ids, rule.ID)
	}
	h.finish(w, r, doc.Acts, ids)
}

func (h handler) finish(w http.ResponseWriter, r *http.Request, acts []Act, ids []string) {
	for _, act := range acts {
		if err := h.world.Do(r.Context(), act); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
	}
	answer(w, map[string]any{"ids": append([]string{}, ids...)})
}

func (h handler) remove(w http.ResponseWriter, r *http.Request) {
	if !h.in.Remove(r.PathValue("id")) {
		http.Error(w, "no such rule", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h handler) calls(w http.ResponseWriter, r *http.Request) {
	calls := h.log.Calls(r.URL.Query()["action"]...)
	if code := r.URL.Query().Get("code"); code != "" {
		calls = slices.DeleteFunc(calls, func(c Call) bool { return c.Code != code })
	}
	answer(w, map[string]any{"counts": h.log.Counts(), "calls": calls, "tokens_of_several_launches": h.log.TokensOfSeveralLaunches()})
}

func (h handler) act(w http.ResponseWriter, r *http.Request) {
	var act Act
	err := strict(r.Body, &act)
	if err == nil {
		err = act.check()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := h.world.Do(r.Context(), act); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	// The caller going away is its own affair.
	_ = json.NewEncoder(w).Encode(body)
}
