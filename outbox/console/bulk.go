package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// startJob begins a bulk action.
func (c *Console) startJob(ctx context.Context, r *request) error {
	form := readFilter(r.PostForm)
	f, err := form.filter()
	if err != nil {
		return err
	}
	v, err := r.chosen()
	if err != nil {
		return err
	}
	// The state is asked for, though Bulk would take any filter: a verb is for
	// messages of some states, and a slip must not reach all others.
	if !slices.ContainsFunc(bulkVerbs(form.State), func(b verb) bool { return b.Name == v.Name }) {
		return failure{http.StatusBadRequest, "That can't be done to all messages of this state. Nothing was done."}
	}
	a, err := r.audit()
	if err != nil {
		return err
	}
	spec := jobSpec{Verb: v, Filter: form, Audit: a}
	if spec.Total, spec.About, err = c.matching(ctx, f); err != nil {
		return err
	}
	id, err := c.jobs.start(ctx, spec, c.now, func(ctx context.Context, progress func(outbox.Progress)) (outbox.Progress, error) {
		got, err := c.box.Bulk(ctx, f, v.one(c.box), a, progress)
		if err != nil && ctx.Err() == nil {
			c.log.ErrorContext(ctx, "console: bulk action failed", slog.String("verb", v.Name), slog.Int("matched", got.Matched), slog.Any("error", err))
		}
		return got, err
	})
	switch {
	case errors.Is(err, errTooMany):
		return failure{http.StatusConflict, "Several bulk actions run already: wait for one of them, or stop it. Nothing was done."}
	case err != nil:
		return failure{http.StatusServiceUnavailable, "The application is shutting down. Nothing was done."}
	}
	c.log.InfoContext(ctx, "console: bulk action", slog.String("verb", v.Name), slog.String("filter", form.Query()), slog.String("by", a.By))
	r.redirect("jobs/" + id)
	return nil
}

// matching is how many messages a filter means, where the statistics know it.
func (c *Console) matching(ctx context.Context, f outbox.Filter) (total int64, about bool, err error) {
	if f.Provider != "" || !f.Since.IsZero() || !f.Before.IsZero() {
		return 0, false, nil
	}
	s, err := c.box.Stats(ctx)
	if err != nil {
		return 0, false, err
	}
	for _, d := range s.Depths {
		if slices.Contains(f.States, d.State) && (f.Route == "" || d.Route == f.Route) && (f.Reason == 0 || d.Reason == f.Reason) {
			total += d.Count
			about = about || d.Approximate
		}
	}
	return total, about, nil
}

func (c *Console) jobList(ctx context.Context, r *request) error {
	c.render(ctx, r, http.StatusOK, "jobs", view{Title: "Bulk actions", Nav: "jobs", Data: c.jobs.views("")})
	return nil
}

// refreshJob is how often the page of a job that runs loads itself again.
const refreshJob = 2

func (c *Console) job(ctx context.Context, r *request) error {
	list := c.jobs.views(r.PathValue("id"))
	if len(list) == 0 {
		return unknownJob()
	}
	v := view{Title: list[0].Verb + ": " + list[0].Outcome, Nav: "jobs", Data: list[0]}
	if list[0].Running {
		v.Title = number(int64(list[0].Matched)) + " done, " + list[0].Outcome + ": " + list[0].Verb
		v.Refresh = refreshJob
	}
	c.render(ctx, r, http.StatusOK, "job", v)
	return nil
}

func (c *Console) stopJob(ctx context.Context, r *request) error {
	id := r.PathValue("id")
	if !c.jobs.stop(id, r.actor.Name) {
		return unknownJob()
	}
	c.log.InfoContext(ctx, "console: bulk action stopped", slog.String("by", r.actor.Name))
	r.redirect("jobs/" + id)
	return nil
}

func unknownJob() error {
	return failure{http.StatusNotFound, "This process knows no such bulk action: another one runs it, or it ended long ago. What it did stands in the messages' histories."}
}
