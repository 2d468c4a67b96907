-- The state of the server's snowflake generator, for people, in psql:
--
--   \i monitoring/status.sql
--
-- Anybody may run it.  Without pg_read_all_stats (pg_monitor has it) the
-- numbers are not shown.  It changes nothing, psql's settings included.

SELECT string_agg(line, E'\n' ORDER BY n) AS snowflake_report
	FROM snowflake_status, snowflake_stats,
		LATERAL (SELECT pg_has_role('pg_read_all_stats', 'USAGE')) r (may_see),
		LATERAL unnest(ARRAY[
			'snowflake: ' || CASE WHEN advice IS NOT NULL THEN advice
								WHEN gate = 'open' THEN 'healthy'
								ELSE gate END,
			CASE WHEN NOT may_see THEN '(Numbers are for members of pg_monitor.)' END,
			'',
			'Generator',
			format('  %-16s%s', 'gate', gate),
			format('  %-16s%s', 'node ID', coalesce(node::text, '-')),
			'  node ID from    ' || node_source || coalesce(', leased until ' || lease_until, '') ||
				coalesce(', coordinator ' || coordinator, ''),
			format('  %-16s%s', 'layout', layout),
			format('  %-16s%s', 'layout ends', coalesce(layout_ends::text, '-')),
			format('  %-16s%s', 'keeper', coalesce('process ' || keeper_pid, '-')),
			format('  %-16s%s', 'last mint', CASE WHEN NOT may_see THEN '-'
				ELSE coalesce(last_time::text, 'none since the server''s start or promotion') END),
			format('  %-16s%s', 'frontier', coalesce(frontier_lag || ' behind the newest ID' ||
				coalesce(', held by process ' || frontier_holder, ''), '-')),
			format('  %-16s%s', 'lead', coalesce(lead::text, '-')),
			format('  %-16s%s', 'reserved until', coalesce(reserved_until::text, '-')),
			format('  %-16s%s', 'standby wait', coalesce(standby_wait::text, '-')),
			'',
			'Counters since ' || coalesce(stats_reset::text, '-'),
			format('  %-16s%12s', 'minted', coalesce(minted::text, '-')),
			format('  %-16s%12s', 'reservations', coalesce(reservations::text, '-')),
			CASE WHEN coordinator IS NOT NULL THEN
				format('  %-16s%12s  %s renewals, %s errors', 'leases', coalesce(leases::text, '-'),
					coalesce(lease_renewals::text, '-'), coalesce(lease_errors::text, '-')) END,
			'',
			format('%-18s%12s  %-16s  %s', 'Waits', 'mints', 'time', 'longest'),
			format('  %-16s%12s  %-16s  %s', 'for the clock', coalesce(clock_waits::text, '-'),
				coalesce(clock_wait_total::text, '-'), coalesce(clock_wait_longest::text, '-')),
			format('  %-16s%12s  %-16s  %s', 'for the keeper', coalesce(keeper_waits::text, '-'),
				coalesce(keeper_wait_total::text, '-'), coalesce(keeper_wait_longest::text, '-')),
			'',
			format('%-18s%12s', 'Refusals', 'mints'),
			format('  %-16s%12s  %s', 'node', coalesce(refused_node::text, '-'), 'no node ID: unset, not leased, lease ended, or too large'),
			format('  %-16s%12s  %s', 'layout', coalesce(refused_layout::text, '-'), 'another layout is stored'),
			format('  %-16s%12s  %s', 'keeper', coalesce(refused_keeper::text, '-'), 'the keeper is not ready or too late, or the reservation is missing'),
			format('  %-16s%12s  %s', 'clock', coalesce(refused_clock::text, '-'), 'too far ahead of the clock'),
			format('  %-16s%12s  %s', 'end', coalesce(refused_end::text, '-'), 'the layout has ended'),
			format('  %-16s%12s  %s', 'standby', coalesce(refused_standby::text, '-'), 'the server is in recovery'),
			'',
			format('%-18s%12s  %-16s  %s', 'Clock', 'times', '', 'largest'),
			format('  %-16s%12s  %-16s  %s', 'went back', coalesce(clock_steps_back::text, '-'), '',
				coalesce(clock_step_back_largest::text, '-')),
			format('  %-16s%12s  %-16s  %s', 'went ahead', coalesce(clock_steps_ahead::text, '-'), '',
				coalesce(clock_step_ahead_largest::text, '-')),
			format('  %-16s%12s', 'state', clock_state),
			CASE WHEN last_id IS NOT NULL THEN E'\nThe newest ID' END,
			regexp_replace(snowflake_explain(last_id), '^(?=.)', '  ', 'gn')]) WITH ORDINALITY l (line, n)
\gset
\echo :snowflake_report
\unset snowflake_report
